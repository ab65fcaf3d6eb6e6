"""Samples in the page about a run."""

import dataclasses
import importlib
import json
import math

from generator.language import requires
from generator.language.roles import SMALL, Page

requires("report/samples")

HOSTILE = "</pre><script>alert(1)</script> $state"


def test_it_shows_the_last_group(tmp_path):
    module = importlib.import_module("..report", __package__)
    report = module.Report(tmp_path, dataclasses.replace(SMALL, group_size=3), [math.nan, math.nan], "")
    chat = [{"role": "user", "content": f"{HOSTILE} 2"}]
    records = [{"round": 7, "prompt": "an older one", "completion": "x" * 200_000, "reward": 0.0} for _ in range(9)]
    again = {"round": 8, "prompt": chat, "completion": "of a start that was killed", "reward": 0.0}
    records += [again | {"completion": f"{HOSTILE} {i}", "reward": reward} for i, reward in enumerate([0.25, None, 1])]
    lines = [json.dumps(record) for record in [*records[:9], again, *records[9:]]]
    (tmp_path / "completions.jsonl").write_text("\n".join(lines) + "\n")
    report.add(1, {"rollout/reward": 0.5, "eval/reward": 0.75})
    text = Page((tmp_path / "report.html").read_text()).text
    assert "held-out reward0.75" in text
    assert f"user: {HOSTILE} 2" in text and "an older one" not in text and "of a start" not in text
    rewarded = ["reward 0.25", "no reward", "reward 1"]
    assert all(f"{reward}{HOSTILE} {i}" in text for i, reward in enumerate(rewarded))


def test_a_call_is_shown_and_a_file_without_a_round_draws_nothing():
    module = importlib.import_module("..report", __package__)
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "look"}}]}
    assert "look" in module.shown_text([call]) and module.draw_samples([]) == ""


def test_records_of_another_form_leave_the_page_without_samples(tmp_path):
    module = importlib.import_module("..report", __package__)
    report = module.Report(tmp_path, dataclasses.replace(SMALL, group_size=3), [math.nan, math.nan], "")
    good = {"round": 1, "prompt": "x", "completion": "y", "reward": 1}
    for odd in 3, {}, good | {"reward": "1"}, good | {"prompt": {"a": 1}}, good | {"prompt": [3]}:
        (tmp_path / "completions.jsonl").write_text(json.dumps(odd))
        report.add(1, {"train/loss": 1.0})
        report.draw()
        assert "loss" in Page((tmp_path / "report.html").read_text()).text


def test_long_texts_are_cut(tmp_path):
    module = importlib.import_module("..report", __package__)
    assert module.shown_text("<" * 3_000).count("&lt;") == 2_000
