"""Signals end a run at its next step, which is saved."""

import dataclasses
import email
import importlib
import signal
import sys
from pathlib import Path

import pytest

from generator.language import requires, splice
from generator.language.roles import (
    SMALL,
    ending_with_messages,
    finish,
    metrics,
    read_metrics,
    start,
    wait_for,
)

requires("preemption")


@splice("test_resume.stopped", optional=True)
def _(tmp_path, cache):
    stopping = start(tmp_path, cache, checkpoint_every=10_000)
    enough = metrics(tmp_path)[-1]["step"] + 2  # of a run that may begin at an earlier step
    # long before the evaluation of step 36 or 54, and after that of 18 or 36: a signal skips one that is due
    wait_for(stopping, lambda: any(r["step"] >= enough and 0 < r["step"] % 18 < 6 for r in metrics(tmp_path)[-1:]))
    stopping.send_signal(signal.SIGTERM)
    printed = finish(stopping, 75)
    stopped = metrics(tmp_path)[-1]["step"]
    assert "stopping after this step" in printed and f"stopped by a signal after step {stopped}, which" in printed
    assert stopped < 60 and (tmp_path / str(stopped)).is_dir()


def train_module():
    return importlib.import_module("..trainer", __package__)


class Ended(BaseException):
    """What a signal raises that training leaves alone."""


@pytest.mark.parametrize("phase", ["data", "evaluation", "compilation", "start-up"])
def test_signals_end_a_run_at_its_next_step_or_at_once_before_the_first(phase, tmp_path, monkeypatch):
    """Sends two, as launchers do, whatever else is due: finished steps are saved, and the directory is unlocked."""
    module = train_module()
    calls = []

    def signalled(name, at=1):
        places = module.Batches, module, sys.modules[getattr(module, "open_data", module.train).__module__]
        place = next(x for x in places if hasattr(x, name))
        do = getattr(place, name)

        def call(*arguments, **settings):
            calls.append(name)
            for number in (signal.SIGTERM,) * 2 if calls.count(name) == at else ():
                signal.raise_signal(number)
            return do(*arguments, **settings)

        monkeypatch.setattr(place, name, call, raising=False)

    def end(*_):
        raise Ended

    names = {"data": "__next__", "evaluation": "eval_step", "compilation": "compile_step"}
    signalled(names.get(phase, "held_out_batches"), 2 if phase == "data" else 1)
    is_training = phase in ("data", "evaluation")
    config = dataclasses.replace(SMALL, steps=9, eval_every=2, data=str(Path(email.__file__).parent / "mime/m*.py"))
    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit if is_training else Ended) as ended, ending_with_messages():
            module.train(dataclasses.replace(config, checkpoint_dir=str(tmp_path)))
        assert signal.getsignal(signal.SIGINT) == (signal.SIG_DFL if is_training else end)  # Ctrl-C again ends it
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert not is_training or ended.value.code == 75
    steps = {"data": ["2"], "evaluation": ["3"]}.get(phase, [])
    assert [path.name for path in tmp_path.iterdir() if path.name.isdigit()] == steps
    assert not (tmp_path / "lock").exists()
    assert not any("eval/loss" in record for record in (read_metrics(tmp_path) if steps else []))


def test_an_evaluation_that_a_signal_interrupts_records_nothing():
    module = train_module()
    module.signals.append(signal.SIGTERM)
    try:
        module.evaluate_held_out(None, 1, None, held_out=[{}], data=None, monitor=None)
    finally:
        module.signals.clear()
