"""Where the time of a run went."""

import dataclasses
import email
import importlib
import json
import sys
import time
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import SMALL

requires("goodput")


def train_module():
    return importlib.import_module("..trainer", __package__)


def test_all_time_is_told(tmp_path, capsys):
    """Checks the last line of a run and its metrics: the parts add up to all of its time."""
    settings = dict(data=str(Path(email.__file__).parent / "*.py"), steps=6, eval_batches=1)
    train_module().train(dataclasses.replace(SMALL, **settings, checkpoint_dir=str(tmp_path)))
    first = capsys.readouterr().out
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    (shares,) = ({n: x for n, x in r.items() if n.startswith("goodput/")} for r in records if "goodput/steps" in r)
    assert set(shares) == {f"goodput/{part}" for part in train_module().Goodput.PARTS} and min(shares.values()) >= 0
    np.testing.assert_allclose(sum(shares.values()), 1)
    assert shares["goodput/compiling"] > 0 and shares["goodput/steps"] > 0
    assert "\ngoodput: steps " in first and ", start-up " in first


def test_the_time_goes_to_what_took_it(tmp_path, monkeypatch):
    """Makes data, checkpoints and logs take a second each, by a clock that nothing else moves."""
    module = train_module()
    now = 0.0

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

    for user in module.train, module.Monitor, module.Goodput:
        clock = types.SimpleNamespace(perf_counter=perf_counter, strftime=time.strftime, gmtime=time.gmtime)
        monkeypatch.setattr(sys.modules[user.__module__], "time", clock)
    monkeypatch.setattr(module.Batches, "__next__", slowly(module.Batches.__next__), raising=False)
    monkeypatch.setattr(module.Checkpoints, "save", slowly(module.Checkpoints.save))
    monkeypatch.setattr(module.Monitor, "restart_clock", slowly(module.Monitor.restart_clock))
    totals = {}

    def shares(self):
        totals.update(self.seconds)
        return dict(self.seconds)

    monkeypatch.setattr(module.Goodput, "shares", shares)
    data = Path(email.__file__).parent / "*.py"
    config = dataclasses.replace(SMALL, steps=6, checkpoint_every=3, eval_every=99, eval_batches=1, data=str(data))
    module.train(dataclasses.replace(config, checkpoint_dir=str(tmp_path)))
    taken = {"data": 6, "checkpoints": 2, "other": 2}
    assert totals == pytest.approx(dict.fromkeys(totals, 0) | taken, abs=0.01)
