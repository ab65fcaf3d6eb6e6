"""A trace of some steps."""

import dataclasses
import email
import importlib
import os
from pathlib import Path

import jax
import pytest

from generator.language import requires
from generator.language.roles import SMALL, InputError

requires("profile")


def train_module():
    return importlib.import_module("..trainer", __package__)


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # of JAX's reader, in Python 3.12
def test_the_trace_has_the_steps_of_the_window(tmp_path):
    """Reads the trace with JAX's own reader."""
    settings = dict(data=str(Path(email.__file__).parent / "*.py"), steps=6, eval_batches=1, profile_steps="3:4")
    train_module().train(dataclasses.replace(SMALL, **settings, checkpoint_dir=str(tmp_path)))
    (path,) = tmp_path.glob("profile/plugins/profile/*/*.xplane.pb")
    events = [e for p in jax.profiler.ProfileData.from_file(str(path)).planes for line in p.lines for e in line.events]
    assert sorted(dict(e.stats)["step_num"] for e in events if e.name == "train") == [3, 4]
    assert any("train_step" in e.name for e in events)  # the program itself


@pytest.mark.parametrize("window", ["13:10", "a:b", "0:3", "10:21", "10", ":5", "5:", "1:2:3", "9" * 5000 + ":1"])
def test_windows_that_there_are_not(window, tmp_path):
    """They are refused before anything is created."""
    config = dataclasses.replace(SMALL, steps=20, profile_steps=window, checkpoint_dir=str(tmp_path / "run"))
    with pytest.raises(InputError, match=f"^--profile-steps {window}: must be FIRST:LAST, steps from 1 to 20$"):
        train_module().train(config)
    assert not os.listdir(tmp_path)
