"""benchmarks/gpu.py: what is measured stands whatever happens to its process, and time is kept; --small runs all of it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu

SCRIPT = Path(gpu.__file__)
PRINTED = """echo '{"what": "step", "seconds": 1}'"""
# way -> what its process does, after a first record
WAYS = {
    "good": "true",
    "raises": "echo 'ValueError: no such kernel' >&2; exit 1",
    "killed": "printf {; kill -9 $$",
    "hangs": "sleep 600; true",  # and what it started holds its output open
    "late": "true",
}


def test_a_measurement_that_fails_ends_alone_and_time_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "RESERVE", 0)
    monkeypatch.setattr(gpu, "LEAST", 1)
    measurements = [gpu.Measurement("row", way, "", "train") for way in WAYS]

    def command_of(measurement):
        return ["sh", "-c", f"{PRINTED}; {WAYS[measurement.way]}"], dict(os.environ)

    results, start = gpu.Results(tmp_path / "results.jsonl"), time.monotonic()
    gpu.run(measurements, command_of, results, 3, tmp_path)
    assert time.monotonic() - start < 6
    stands = gpu.Results(tmp_path / "results.jsonl").records
    assert stands == results.records
    assert [it["way"] for it in stands if it["status"] == "measured"] == ["good", "raises", "killed", "hangs"]
    ends = {it["way"]: (it["status"], it.get("why")) for it in stands if it["status"] != "measured"}
    assert ends["good"] == ("done", None) and ends["raises"] == ("failed", "ValueError: no such kernel")
    assert ends["killed"] == ("failed", "exit code -9") and ends["late"] == ("left out", "no time was left")
    assert ends["hangs"][0] == "failed" and ends["hangs"][1].startswith("stopped after")
    with results.path.open("a") as file:
        file.write('{"row": {}')  # killed while it wrote
    results = gpu.Results(results.path)
    gpu.run(measurements[:2], command_of, results, 30, tmp_path)  # goes on where it ended
    assert gpu.Results(results.path).records == results.records
    assert results.records[: len(stands)] == stands
    assert [it["way"] for it in results.records[len(stands) :]] == ["raises", "raises"]


def test_a_page_says_what_failed_and_shares_of_the_card(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("card.page.draw", lambda speeds, *_: drawn.append(speeds))
    step = {"row": "train", "status": "measured", "what": "step", "tokens": 100, "flops": {"full": 494.5e12}}
    records = [
        {
            "status": "machine",
            "card": "NVIDIA H200",
            "date": "2026-01-01",
            "python": "3",
            "versions": {},
            "missing": [],
        },
        {
            "row": "peak",
            "way": "torch",
            "status": "measured",
            "what": "product in bfloat16",
            "flops": {"full": 791.2e12},
        },
        step | {"way": "ours"},
        step | {"way": "torch"},
        {"row": "experts", "way": "torch", "status": "failed", "why": "exit code -9"},
    ]
    for record, median in zip(records[1:4], (1, 1, 2), strict=True):
        record["seconds"] = {"median": median, "p25": median, "p75": median, "repetitions": 1}
    gpu.write_page(records, tmp_path)
    page = (tmp_path / "gpu.md").read_text()
    assert "full 494.5 TFLOP/s: 50.0%, 62.5%" in page and "- train: step: 2.00" in page  # 989e12 on the data sheet
    assert "torch: failed: exit code -9." in page and drawn == [{"train: step": 2}]


def test_a_folder_without_packages_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--small", "--prepared", str(tmp_path)])
    with pytest.raises(SystemExit, match="nothing is prepared there: make it by --prepare"):
        gpu.main()


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_small_measures_all_of_it_and_goes_on_after_a_kill(tmp_path):
    prepared, out = tmp_path / "prepared", tmp_path / "out"
    subprocess.run([sys.executable, SCRIPT, "--prepare", prepared], check=True)
    command = [sys.executable, SCRIPT, "--small", "--prepared", prepared, "--out", out]
    process = subprocess.Popen(command)
    results = out / "results.jsonl"
    wait_for(lambda: results.exists() and '"measured"' in results.read_text(), 120)
    process.kill()
    process.wait()
    before = results.read_text()
    for pid in subprocess.run(
        ["pgrep", "-f", f"prepared {prepared} --small"], capture_output=True, text=True
    ).stdout.split():
        with contextlib.suppress(ProcessLookupError):  # its child ends by itself
            wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 30)
    subprocess.run(command, check=True)
    assert results.read_text().startswith(before)
    records = [json.loads(line) for line in results.read_text().splitlines()]
    ended = {it["name"]: it for it in records if it["status"] in ("done", "failed", "left out")}
    without = {name for name, it in ended.items() if it.get("why") == "ModuleNotFoundError: No module named 'torchao'"}
    assert ended.keys() == {it.name for it in gpu.MEASUREMENTS} and without <= {"fp8: torch"}
    assert {name: it for name, it in ended.items() if it["status"] != "done"}.keys() == without
    measured = [it for it in records if it["status"] == "measured"]
    assert {it["name"] for it in measured} == ended.keys() - without
    for it in measured:
        amounts = [
            it["seconds"]["median"],
            it.get("bytes", 1),
            *it.get("flops", {1: 1}).values(),
            it.get("peak_gib", 1),
        ]
        assert all(math.isfinite(x) and x > 0 for x in amounts), it
    losses = {it["name"]: it["first_loss"] for it in measured if "first_loss" in it}
    same = losses["train, packed: ours"], losses["train, packed: ours, by a mask"], losses["train: ours"]
    assert same[0] == pytest.approx(same[1], rel=2e-3) and losses["fp8: ours"] == pytest.approx(same[2], rel=2e-2)
    assert all(it["error"] < 2e-2 for it in measured if "error" in it)
    assert (out / "gpu.md").exists() and (out / "gpu.png").exists()
