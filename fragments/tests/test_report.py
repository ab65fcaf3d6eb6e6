"""The page about a run."""

import dataclasses
import email
import importlib
import math
import re
import types
from pathlib import Path

import numpy as np
import pytest

from generator.language import point, requires
from generator.language.roles import PRESETS, SMALL, Page, format_number, read_metrics

requires("report/report")

HOSTILE = "</pre></style></script><script>alert(1)</script><img src=x onerror='a'>\"' onload=\"b\" $state ${x} \ud800"
DATA = str(Path(email.__file__).parent / "*.py")
CONFIG = dataclasses.replace(SMALL, data=DATA, eval_batches=1, eval_every=2, checkpoint_every=2)


def module(name):
    return importlib.import_module(f"..{name}", __package__)


def new_report(folder, **settings):
    config = dataclasses.replace(SMALL, **settings)
    return module("report").Report(folder, config, [math.nan, math.nan], "an unknown peak")


def test_it_has_what_a_run_and_its_continuation_recorded(tmp_path):
    for steps in 3, 6:
        module("trainer").train(dataclasses.replace(CONFIG, steps=steps, checkpoint_dir=str(tmp_path)))
    page = Page((tmp_path / "report.html").read_text())
    records = read_metrics(tmp_path)
    recorded = {name: [(r["step"], r[name]) for r in records if name in r] for r in records for name in r}
    del recorded["step"], recorded["time"]
    assert [step for step, _ in recorded["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in recorded["eval/loss"]] == [2, 3, 4, 6]
    point("test_report.metrics", recorded, page)
    for name, values in recorded.items():
        least, most = (format_number(f(value for _, value in values)) for f in (min, max))
        assert f" {format_number(values[-1][1])} {least} to {most}" in page.text, name
        for step, value in values:
            assert f"step {step}: {format_number(value)}" in page.text, name
    assert "ended, step 6: " in page.text and not any("http-equiv" in x and "30" in x.values() for x in page.attributes)
    assert f"width{SMALL.width}{PRESETS['tiny'].width}" in page.text and "vocab_size" not in page.text
    for library in "jax", "flax", "optax":
        assert library + importlib.import_module(library).__version__ in page.text
    assert not list(tmp_path.glob("*.half"))


def test_it_says_how_a_run_goes(tmp_path, monkeypatch):
    pages = []

    def fail(*_):
        pages.append(Page((tmp_path / "report.html").read_text()))
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(module("trainer"), "evaluate_held_out", fail)
    with pytest.raises(RuntimeError):
        module("trainer").train(dataclasses.replace(CONFIG, steps=4, checkpoint_dir=str(tmp_path)))
    pages.append(Page((tmp_path / "report.html").read_text()))
    assert "running, step 1: " in pages[0].text and {"http-equiv": "refresh", "content": "30"} in pages[0].attributes
    assert "failed, step 2: " in pages[1].text and f"RuntimeError: {HOSTILE[:40]}" in pages[1].text
    for step, kind, state in (3, None, "stopped"), (3, KeyboardInterrupt, "stopped"), (4, None, "ended"):
        report = new_report(tmp_path, steps=4)
        report.add(step, {})
        report.end(kind, kind and kind(), None)
        assert report.state == state and not report.error


def test_no_text_becomes_html(tmp_path):
    report = new_report(tmp_path, tokenizer=HOSTILE, data=HOSTILE, checkpoint_dir=HOSTILE)
    report.peak = HOSTILE
    report.add(1, {HOSTILE: 1.0, f"train/{HOSTILE}": 2.0, f"{HOSTILE}/x": 3.0})
    page = Page((tmp_path / "report.html").read_text())
    assert page.text.count(HOSTILE.replace("\ud800", "?")) >= 6


def test_lines_that_are_no_records_cost_nothing_else(tmp_path):
    """Numbers that no chart can have, other types, half a line, too many levels; and a page with the rest."""
    odd = ["NaN", "Infinity", "-Infinity", "1e308", "-1e308", "1" + "0" * 400, '"1"', "null", "[]", "true"]
    lines = [f'{{"step": 1, "train/loss": {value}}}' for value in odd]
    lines += [f'{{"step": {step}, "train/loss": 9}}' for step in ("-1e999", "-" + "9" * 400, "NaN", '"x"', "[]", "{}")]
    lines += [
        '{"step": 1, "train/tokens_per_second": 1e-299}',
        "[" * 100_000,
        '{"step": 1, "train/loss": 5.5}',
        "3",
        '"x"',
        "\ufeff",
        '{"step": 1, "eval/accuracy": 0.2',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    module("monitor").drop_later_records(tmp_path / "metrics.jsonl", 2)
    report = new_report(tmp_path)
    report.resume(tmp_path / "metrics.jsonl")
    report.add(3, {"train/loss": 2.5})
    page = Page((tmp_path / "report.html").read_text())
    assert " 2.5 1 to 5.5" in page.text and "accuracy" not in page.text


def test_a_page_that_cannot_be_written_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module("report"), "INTERVAL", 0)
    (tmp_path / "report.html/in_the_way").mkdir(parents=True)
    module("trainer").train(dataclasses.replace(CONFIG, steps=4, checkpoint_dir=str(tmp_path)))
    assert (tmp_path / "4").exists() and read_metrics(tmp_path)[-1]["step"] == 4
    assert capsys.readouterr().err.count("warning: report.html: ") == 1 and not (tmp_path / "report.half").exists()


def test_it_is_drawn_now_and_then(tmp_path, monkeypatch):
    """At once, and then once the time has come, of which a page may take a hundredth."""
    clock = 0
    drawn = []

    def page(_):
        drawn.append(clock)
        return ""

    report = new_report(tmp_path)
    monkeypatch.setattr(module("report"), "time", types.SimpleNamespace(perf_counter=lambda: clock))
    monkeypatch.setattr(type(report), "page", page)
    for clock in range(100):
        report.add(clock, {})
    assert drawn == [0, 21, 42, 63, 84]
    report.seconds = 0.5
    for clock in range(100, 150):
        report.add(clock, {})
    assert drawn[5:] == [135]


def test_curves_are_thinned_evenly_and_keep_extremes():
    curve = module("curves").Curve()
    values = np.random.default_rng(0).normal(size=10_000)
    values[[7_777, 5_000]] = 99, -99
    for step, value in enumerate(values.tolist()):
        curve.add(step, value)
        if step == 299:
            assert curve.drawn() == list(enumerate(values[:300].tolist()))
    points = curve.drawn()
    steps = [step for step, _ in points]
    assert 500 <= len(points) <= 1_003 and steps == sorted({*steps}) and np.diff(steps).max() < 80
    assert all(value == values[step] for step, value in points)
    assert {(7_777, 99), (5_000, -99), (9_999, values[-1])} <= {*points}


def test_a_chart_is_to_scale():
    """Reads values back from the path by the rows of its grid, which have labels."""
    values = np.random.default_rng(1).uniform(3, 9, 50)
    curve = module("curves").Curve()
    for step, value in enumerate(values.tolist()):
        curve.add(step, value)
    text = module("curves").draw_chart("loss", {"train/loss": curve})
    places = np.array(re.search('class="train" d="M([^"]+)"', text)[1].replace("L", " ").split(), float).reshape(-1, 2)
    rows = np.array(re.findall(r'class="row" style="top:([\d.]+)%">([\d.]+)<', text), float)
    slope, start = np.polyfit(rows[:, 0] * 20, rows[:, 1], 1)
    np.testing.assert_allclose(places[:, 1] * slope + start, values, atol=0.02)
    np.testing.assert_allclose(places[:, 0], np.arange(50) / 49 * 2_000, atol=0.51)


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-30, 1e30], [1e-45, 2e-45], [-3.0, -3.0 - 1e-15]])
def test_any_values_can_be_drawn(values):
    curve = module("curves").Curve()
    for step, value in enumerate(values):
        curve.add(step, value)
    Page(module("curves").draw_charts({"x": curve}))
