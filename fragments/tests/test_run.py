"""What a run leaves beside checkpoints: a trace of some steps, and compiled programs for the next start."""

import dataclasses
import email
import importlib
import os
from pathlib import Path

import jax
import pytest

from generator.language.roles import PACKAGE, PRESETS, SMALL, InputError, run_python


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
    with pytest.raises(InputError, match=f"^--profile-steps {window}: must be FIRST:LAST, two steps from 1 to 20, "):
        importlib.import_module("..train", __package__).train(config)
    assert not os.listdir(tmp_path)


def test_a_second_start_compiles_nothing(run):
    folder, first, second = run
    programs, again = ((folder / name).read_text().split() for name in ("first.txt", "second.txt"))
    assert any("train_step" in name for name in programs)
    assert {x for x in programs if x.endswith("-cache")} == {x for x in again if x.endswith("-cache")}
    found, wanted = (second.count(x) for x in ("Persistent compilation cache hit", "Finished XLA compilation"))
    assert found == wanted > 0
    assert "Persistent compilation cache hit for 'jit_train_step'" not in first
