"""A plot of the losses of a run, loss.png."""

import contextlib
import json

from etils import epath
from matplotlib.figure import Figure

from generator.language import point, splice
from generator.language.roles import may_fail


def draw_losses(metrics: epath.Path, image: epath.Path) -> None:
    """Draws the losses of training and of evaluation by step, from a file of JSON lines."""
    losses = {name: ([], []) for name in ("train/loss", "eval/loss")}  # steps and values
    with open(metrics, "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # not a record
                record = json.loads(line)
                for name in losses.keys() & record.keys():
                    losses[name][0].append(record["step"])
                    losses[name][1].append(record[name])
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for (name, (steps, values)), style in zip(losses.items(), ("-", "o-"), strict=True):
        axes.plot(steps, values, style, label=name)
    with point("draw_losses.label", axes):
        axes.set(xlabel="step of the optimizer", ylabel="cross-entropy (nats per token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(image, dpi=150)


@splice("Monitor.close")
def _(self):
    with may_fail("loss.png", self.failed):
        point("Monitor.draw")
        draw_losses(self.metrics_path, self.folder / "loss.png")
    point("Monitor.drawn", self)
