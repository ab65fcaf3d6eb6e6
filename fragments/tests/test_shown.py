"""What shows a run beside its metrics: TensorBoard and a plot."""

import dataclasses
import email
import importlib
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from generator.language import requires
from generator.language.roles import SMALL, read_metrics

requires("tensorboard", "loss_curve")


def train_module():
    return importlib.import_module("..trainer", __package__)


def test_what_shows_a_run_can_fail_without_ending_it(tmp_path, monkeypatch, capsys):
    """Makes all of it fail at once: the last step is still saved."""
    module = train_module()
    data = Path(email.__file__).parent / "*.py"

    def fail(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(Figure, "savefig", fail)
    monkeypatch.setattr(sys.modules[module.Monitor.__module__].SummaryWriter, "add_scalar", fail)
    config = dataclasses.replace(SMALL, steps=2, eval_batches=1, data=str(data), checkpoint_dir=str(tmp_path))
    module.train(dataclasses.replace(config, eval_first=True))
    assert {path.name for path in tmp_path.glob("[0-9]*")} == {"2"}
    said = capsys.readouterr().err
    for what in "loss.png", "TensorBoard events":
        assert said.count(f"warning: {what}: RuntimeError('no')") == 1
    assert [r["step"] for r in read_metrics(tmp_path) if "eval/loss" in r] == [0, 2]


def test_the_plot_has_both_losses(tmp_path, monkeypatch):
    module = train_module()
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    monitor = module.Monitor(tmp_path, SMALL, 0)
    for step in 5, 6:
        monitor.log_metrics(step, {"train/loss": 2.0 / step, "eval/loss": 3.0})
    monitor.close()
    (axes,) = figures[0].axes
    lines = {line.get_label(): [list(x) for x in line.get_data()] for line in axes.get_lines()}
    assert lines == {"train/loss": [[5, 6], [2 / 5, 2 / 6]], "eval/loss": [[5, 6], [3, 3]]} and axes.get_legend()


def test_tensorboard_reads_the_events(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monitor = train_module().Monitor(tmp_path, SMALL, 0)
    for step in 1, 2:
        monitor.log_metrics(step, {"train/loss": 2.0})
    monitor.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 2.0), (2, 2.0)]
