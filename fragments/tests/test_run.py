"""What a run leaves beside checkpoints: a trace of some steps, compiled programs, metrics, where its time went."""

import dataclasses
import email
import importlib
import json
import os
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from generator.language.roles import PACKAGE, PRESETS, SMALL, InputError, run_python


def train_module():
    return importlib.import_module("..train", __package__)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder in which a run was started twice, from nothing, with the same compiled programs; what was printed."""
    folder, printed = tmp_path_factory.mktemp("run"), []
    sizes = {name: size for name, size in vars(SMALL).items() if size != getattr(PRESETS["tiny"], name)}
    settings = sizes | dict(data=Path(email.__file__).parent / "*.py", steps=6, eval_batches=1, profile_steps="3:4")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_LOG_COMPILES", "1")
        for name in "first", "second":
            flags_of_this = f"--checkpoint-dir={folder / name}", f"--compile-cache={folder / 'cache'}"
            process = run_python("-m", f"{PACKAGE.name}.train", "--preset=tiny", *flags, *flags_of_this)
            assert process.returncode == 0, process.stderr
            printed.append(process.stdout + process.stderr)
            (folder / f"{name}.txt").write_text("\n".join(os.listdir(folder / "cache")))
    return folder, *printed


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of JAX's reader, by Python 3.12
def test_the_trace_has_the_steps_of_the_window(run):
    """As JAX's own reader of traces says."""
    (path,) = run[0].glob("first/profile/plugins/profile/*/*.xplane.pb")
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


def test_a_cache_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        train_module().train(dataclasses.replace(SMALL, compile_cache=str(tmp_path / "file/cache")))


def test_a_second_start_compiles_nothing(run):
    folder, first, second = run
    programs, again = ((folder / name).read_text().split() for name in ("first.txt", "second.txt"))
    assert any("train_step" in name for name in programs)
    assert {x for x in programs if x.endswith("-cache")} == {x for x in again if x.endswith("-cache")}
    found, wanted = (second.count(x) for x in ("Persistent compilation cache hit", "Finished XLA compilation"))
    assert found == wanted > 0
    assert "Persistent compilation cache hit for 'jit_train_step'" not in first


def test_all_time_is_told(run):
    """In the last line of a run and in its metrics; the parts are all the time that there was."""
    folder, first, _ = run
    records = map(json.loads, (folder / "first/metrics.jsonl").read_text().splitlines())
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


def test_metrics_go_through_one_function(tmp_path, monkeypatch):
    module, logged = train_module(), []
    monkeypatch.setattr(module, "log_metrics", lambda _, step, values: logged.append({"step": step, **values}))
    monitor = module.Monitor(module.absolute(str(tmp_path)), SMALL, 0)
    monitor.record(1, {"train/loss": 2.0, "nothing": float("nan")})
    monitor.close()
    assert logged == [{"step": 1, "train/loss": 2.0}] == [json.loads((tmp_path / "metrics.jsonl").read_text())]
