"""A plot of what evaluations measure besides the loss, scores.png."""

import collections
import contextlib
import json

from etils import epath
from matplotlib.figure import Figure

from generator.language import requires, splice
from generator.language.roles import may_fail

requires("loss_curve")


def draw_scores(metrics: epath.Path, image: epath.Path) -> None:
    """Draws each score of evaluations by step, one above the other, from a file of JSON lines; nothing without any."""
    scores = collections.defaultdict[str, tuple[list[int], list[float]]](lambda: ([], []))  # steps and values
    with open(metrics, "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # not a record
                record = json.loads(line)
                for name in record:
                    if name.startswith("eval/") and name != "eval/loss":
                        scores[name][0].append(record["step"])
                        scores[name][1].append(record[name])
    if scores:
        figure = Figure(figsize=(9, 2 * len(scores)), layout="constrained")
        all_axes = figure.subplots(len(scores), sharex=True, squeeze=False).ravel()
        for axes, (name, (steps, values)) in zip(all_axes, sorted(scores.items()), strict=True):
            axes.plot(steps, values, "o-")
            axes.set_ylabel(name.removeprefix("eval/"))
            axes.grid(alpha=0.3)
        all_axes[-1].set_xlabel("step of the optimizer")
        figure.savefig(image, dpi=150)


@splice("Monitor.drawn")
def _(self):
    with may_fail("scores.png", self.failed):
        draw_scores(self.metrics_path, self.folder / "scores.png")
