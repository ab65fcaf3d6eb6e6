"""What a run leaves beside checkpoints: a trace of some steps, metrics, where its time went."""

import dataclasses
import datetime
import email
import importlib
import json
import os
import signal
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import SMALL, InputError, ending_with_messages

requires("command")


def train_module():
    return importlib.import_module("..train", __package__)


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of JAX's reader, by Python 3.12
def test_the_trace_has_the_steps_of_the_window(tmp_path):
    """As JAX's own reader of traces says."""
    settings = dict(data=str(Path(email.__file__).parent / "*.py"), steps=6, eval_batches=1, profile_steps="3:4")
    train_module().train(dataclasses.replace(SMALL, **settings, checkpoint_dir=str(tmp_path)))
    (path,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
    events = [e for p in jax.profiler.ProfileData.from_file(str(path)).planes for line in p.lines for e in line.events]
    assert sorted(dict(e.stats)["step_num"] for e in events if e.name == "train") == [3, 4]
    assert any("train_step" in e.name for e in events)  # the program itself


@pytest.mark.parametrize("window", ["13:10", "a:b", "0:3", "10:21", "10", ":5", "5:", "1:2:3", "9" * 5000 + ":1"])
def test_windows_that_there_are_not(window, tmp_path):
    """They are told before anything is made."""
    config = dataclasses.replace(SMALL, steps=20, profile_steps=window, checkpoint_dir=str(tmp_path / "run"))
    with pytest.raises(InputError, match=f"^--profile-steps {window}: must be FIRST:LAST, steps from 1 to 20$"):
        train_module().train(config)
    assert not os.listdir(tmp_path)


def test_all_time_is_told(tmp_path, capsys):
    """In the last line of a run and in its metrics; the parts are all the time that there was."""
    settings = dict(data=str(Path(email.__file__).parent / "*.py"), steps=6, eval_batches=1)
    train_module().train(dataclasses.replace(SMALL, **settings, checkpoint_dir=str(tmp_path)))
    first = capsys.readouterr().out
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    (shares,) = ({n: x for n, x in r.items() if n.startswith("goodput/")} for r in records if "goodput/steps" in r)
    assert set(shares) == {f"goodput/{part}" for part in train_module().Goodput.PARTS} and min(shares.values()) >= 0
    np.testing.assert_allclose(sum(shares.values()), 1)
    assert shares["goodput/compiling"] > shares["goodput/steps"] > 0  # of six small steps
    assert "\ngoodput: steps " in first and ", start-up " in first


def test_the_time_goes_to_what_took_it(tmp_path, monkeypatch):
    """Readers of data, checkpoints and logs that take a second each, by a clock that nothing else moves."""
    module, now = train_module(), 0.0

    def perf_counter():
        nonlocal now
        now += 1e-6
        return now

    def slowly(do):
        def call(*arguments, **keywords):
            nonlocal now
            now += 1
            jax.block_until_ready(jax.live_arrays())  # so that the device idles
            return do(*arguments, **keywords)

        return call

    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=perf_counter))
    monkeypatch.setattr(module.Batches, "__next__", slowly(module.Batches.__next__), raising=False)
    monkeypatch.setattr(module.Checkpoints, "save", slowly(module.Checkpoints.save))
    monkeypatch.setattr(module.Monitor, "flush", slowly(module.Monitor.flush))
    totals = {}
    monkeypatch.setattr(module.Goodput, "shares", lambda self: totals.update(self.seconds) or dict(self.seconds))
    data = Path(email.__file__).parent / "*.py"
    config = dataclasses.replace(SMALL, steps=6, checkpoint_every=3, eval_every=99, eval_batches=1, data=str(data))
    module.train(dataclasses.replace(config, checkpoint_dir=str(tmp_path)))
    taken = {"data": 6, "checkpoints": 2, "other": 2}
    assert totals == pytest.approx(dict.fromkeys(totals, 0) | taken, abs=0.01)


def read_metrics(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_metrics_go_through_one_function(tmp_path, monkeypatch):
    module, logged = train_module(), []
    monkeypatch.setattr(module, "log_metrics", lambda _, step, values: logged.append({"step": step, **values}))
    monitor = module.Monitor(module.absolute(str(tmp_path)), SMALL, 0)
    monitor.record(1, {"train/loss": 2.0, "nothing": float("nan")})
    monitor.close()
    (record,) = read_metrics(tmp_path)
    assert logged == [{"step": 1, "train/loss": 2.0}] == [{k: x for k, x in record.items() if k != "time"}]
    time = datetime.datetime.fromisoformat(record["time"])
    assert abs(datetime.datetime.now(datetime.UTC) - time) < datetime.timedelta(minutes=1)


@pytest.mark.parametrize("end", ["", '{"step": 9', "\n"])
def test_records_of_later_steps_are_dropped_and_few_lines_are_read(end, tmp_path, monkeypatch):
    """Whatever the step that a run goes on from, in a file of any length."""
    module, read = train_module(), []
    loads = json.loads
    monkeypatch.setattr(module.json, "loads", lambda line: read.append(line) or loads(line))
    lines = [json.dumps({"step": step // 2, "pad": "x" * (step % 7)}) + "\n" for step in range(2000)]
    for step in -1, 0, 1, 500, 998, 999, 5000:
        path = tmp_path / f"{step}.jsonl"
        path.write_text("".join(lines) + end.strip("\n"))
        with open(path, "rb+") as file:
            module.cut_after(file, step)
        assert path.read_text() == "".join(lines[: max(2 * (step + 1), 0)])
    assert len(read) < 7 * 20


@pytest.mark.parametrize("damage", [b"garbage\n", b"[]\n", b'{"a": 1}\n', b"\xff\xfe\n", b'{"step": null}\n', b'"x"\n'])
def test_damaged_metrics_are_put_aside(damage, tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_bytes(damage)
    monitor = train_module().Monitor(tmp_path, SMALL, 3)
    monitor.record(4, {"train/loss": 2.0})
    monitor.close()
    assert [record["step"] for record in read_metrics(tmp_path)] == [4]
    (aside,) = tmp_path.glob("metrics.damaged-*.jsonl")
    assert aside.read_bytes() == damage and f"put aside as {aside.name}" in capsys.readouterr().err


def test_what_shows_a_run_can_fail_without_ending_it(tmp_path, monkeypatch, capsys):
    """All of it at once: the checkpoint of the last step is there."""
    module, data = train_module(), Path(email.__file__).parent / "*.py"

    def fail(*_, **__):
        raise RuntimeError("no")

    for place, name in (module.Figure, "savefig"), (module, "log_metrics"), (module, "upload"):
        monkeypatch.setattr(place, name, fail)
    monkeypatch.setattr(module.SummaryWriter, "flush", fail)
    config = dataclasses.replace(SMALL, steps=2, eval_batches=1, data=str(data), checkpoint_dir=str(tmp_path))
    module.train(dataclasses.replace(config, eval_first=True))
    assert {path.name for path in tmp_path.glob("[0-9]*")} == {"2"}
    said = capsys.readouterr().err
    assert all(
        said.count(f"warning: {what}: RuntimeError('no')") == 1 for what in ("loss.png", "log_metrics", "upload")
    )
    assert [r["step"] for r in read_metrics(tmp_path) if "eval/loss" in r] == [0, 2]


def test_each_plot_has_a_legend_and_something_in_it(tmp_path, monkeypatch):
    module, figures = train_module(), []
    monkeypatch.setattr(module.Figure, "savefig", lambda self, *_, **__: figures.append(self))
    monitor = module.Monitor(tmp_path, SMALL, 0)
    shares = dict.fromkeys((f"goodput/{part}" for part in module.Goodput.PARTS), 1 / 7)
    monitor.record(5, {"train/loss": 2.0, "eval/loss": 3.0} | shares)
    monitor.close()
    for axes, count in zip(figures[0].axes, (2, len(shares)), strict=True):
        _, labels = axes.get_legend_handles_labels()
        assert axes.get_legend() and len(labels) == count
    areas = [part.get_paths()[0].get_extents() for part in axes.collections]
    assert len(areas) == 7 and all(area.width > 0 and area.height > 0 for area in areas)
    assert len({tuple(part.get_facecolor()[0]) for part in axes.collections}) == 7


@pytest.mark.parametrize("phase", ["data", "evaluation", "compilation", "start-up"])
def test_signals_end_a_run_at_its_next_step(phase, tmp_path, monkeypatch, capsys):
    """Two at once, and whatever else is due: with what was done saved, and the directory free."""
    module, calls = train_module(), []

    def signalled(name, at=1):
        do = getattr(module, name) if name != "__next__" else module.Batches.__next__

        def call(*arguments):
            calls.append(name)
            for number in (signal.SIGTERM,) * 2 if calls.count(name) == at else ():
                signal.raise_signal(number)
            return do(*arguments)

        place = module if name != "__next__" else module.Batches
        monkeypatch.setattr(place, name, call, raising=False)

    names = {"data": "__next__", "evaluation": "eval_step", "compilation": "compile_step"}
    signalled(names.get(phase, "held_out_batches"), 2 if phase == "data" else 1)
    if phase == "start-up":
        monkeypatch.setattr(module, "compile_step", None)
    config = dataclasses.replace(SMALL, steps=9, eval_every=2, data=str(Path(email.__file__).parent / "mime/m*.py"))
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as ended, ending_with_messages():
            module.train(dataclasses.replace(config, checkpoint_dir=str(tmp_path)))
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
    assert ended.value.code == 75
    steps = {"data": ["2"], "evaluation": ["3"]}.get(phase, [])
    assert [path.name for path in tmp_path.iterdir() if path.name.isdigit()] == steps
    assert not (tmp_path / "lock").exists()
    assert not any("eval/loss" in record for record in (read_metrics(tmp_path) if steps else []))
