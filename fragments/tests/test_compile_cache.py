"""The compilation cache: a second start compiles nothing."""

import dataclasses
import email
import importlib
import os
from pathlib import Path

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, PRESETS, SMALL, run_python

requires("compile_cache", "train/command")


def test_a_cache_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        importlib.import_module("..trainer", __package__).train(
            dataclasses.replace(SMALL, compile_cache=str(tmp_path / "file/cache"))
        )


def test_a_second_start_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    sizes = {name: size for name, size in vars(SMALL).items() if size != getattr(PRESETS["tiny"], name)}
    settings = sizes | dict(data=Path(email.__file__).parent / "*.py", steps=3, eval_batches=1)
    settings |= dict(compile_cache=tmp_path / "cache")
    printed, kept = [], []
    for name in "first", "second":
        flags = [f"--{field.replace('_', '-')}={value}" for field, value in settings.items()]
        process = run_python(
            "-m", f"{PACKAGE.name}.train", "--preset=tiny", *flags, f"--checkpoint-dir={tmp_path / name}"
        )
        assert process.returncode == 0, process.stderr
        printed.append(process.stdout + process.stderr)
        kept.append(os.listdir(tmp_path / "cache"))
    (first, second), (programs, again) = printed, kept
    assert any("train_step" in name for name in programs)
    assert {x for x in programs if x.endswith("-cache")} == {x for x in again if x.endswith("-cache")}
    found, wanted = (second.count(x) for x in ("Persistent compilation cache hit", "Finished XLA compilation"))
    assert found == wanted > 0
    assert "Persistent compilation cache hit for 'jit_train_step'" not in first
