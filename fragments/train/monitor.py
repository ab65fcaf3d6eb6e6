"""Progress, TensorBoard events and a loss curve."""

import bisect
import collections
import contextlib
import datetime
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import jax
from etils import epath
from jax import Array
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.progress import BarColumn, Progress, TimeRemainingColumn
from tensorboardX import SummaryWriter

from generator.language import splice
from generator.language.roles import Goodput, InputError, flops_per_token, local_folder, log_metrics, peak_flops, upload


class Config:
    max_skipped: int = 10  # steps in a row without finite gradients, which change nothing; one more ends the run


@splice("check_config.bounds")
def _(bounds):
    bounds.update(max_skipped=(0, 2**31 - 1))


def cut_after(file: BinaryIO, step: int) -> None:
    """Drop the records of later steps from a file of JSON lines in the order of steps, of which few are read.

    Raises ValueError, KeyError or TypeError for a line that is no record.
    """

    def line_from(at: int) -> int:  # where the first line begins that begins at `at` or after it
        file.seek(max(at - 1, 0))
        if at > 0:
            file.readline()
        return file.tell()

    def first_step(at: int) -> float:
        line_from(at)
        line = file.readline()
        return json.loads(line)["step"] if line.endswith(b"\n") else math.inf  # the last one may be half a line

    end = bisect.bisect_right(range(file.seek(0, 2)), step, key=first_step)
    file.truncate(line_from(end))


class Monitor:
    """Shows and records a run: a progress bar or lines, metrics.jsonl, TensorBoard events, loss.png."""

    def __init__(self, directory: epath.Path, config: Config, step: int):
        """Goes on after `step`: what a killed run wrote of later steps is dropped, as these steps come again."""
        self.directory, self.local, self.config = directory, local_folder(directory), config
        self.failed: set[str] = set()  # what has failed to be shown
        self.peak, meaning = peak_flops(config.dtype)
        print(f"MFU: share of {meaning}; attention counted in full, or its causal half", flush=True)
        self.local.mkdir(parents=True, exist_ok=True)
        self.metrics_path = self.local / "metrics.jsonl"
        if self.local != directory and (directory / "metrics.jsonl").exists():
            (directory / "metrics.jsonl").copy(self.metrics_path)
        self.metrics_path.touch()
        try:
            with open(self.metrics_path, "rb+") as file:
                cut_after(file, step)
        except (ValueError, KeyError, TypeError):  # UnicodeDecodeError is a ValueError
            aside = self.metrics_path.with_name(f"metrics.damaged-{time.time_ns()}.jsonl")
            self.metrics_path.rename(aside)
            print(f"warning: {self.metrics_path}: is damaged, and put aside as {aside.name}", file=sys.stderr)
        self.file = open(self.metrics_path, "a", buffering=1)
        self.events = SummaryWriter(str(self.local / "tensorboard"), purge_step=step + 1)
        columns = "{task.completed}/{task.total}", BarColumn(None), "{task.description}", "ETA", TimeRemainingColumn()
        self.progress = Progress(*columns, expand=True, disable=not sys.stdout.isatty())
        self.task = self.progress.add_task("", completed=step, total=config.steps)
        self.progress.start()
        self.skipped = 0  # steps in a row
        self.seconds = collections.deque(maxlen=20)  # of the last steps
        self.clock, self.line = time.perf_counter(), -math.inf  # when the last step ended and the last line was printed
        self.uploaded, self.upload_seconds = -math.inf, 0.0  # when the last upload ended, and what it took

    @contextlib.contextmanager
    def shows(self, what: str) -> Iterator[None]:
        """Goes on where something fails that only shows the run, and warns the first time."""
        try:
            yield
        except Exception as error:
            if what not in self.failed:
                print(f"warning: {what}: {error!r}: the run goes on without", file=sys.stderr)
            self.failed.add(what)

    def record(self, step: int, values: dict[str, float]) -> None:
        """Record numbers of a step, with the time of day (ISO 8601, UTC)."""
        values = {name: value for name, value in values.items() if math.isfinite(value)}  # JSON has no others
        with self.shows("metrics.jsonl"):
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            self.file.write(json.dumps({"step": step, "time": now, **values}) + "\n")
        if jax.process_index() == 0:
            with self.shows("log_metrics"):
                log_metrics(self.events, step, values)

    def step(self, step: int, metrics: dict[str, Array]) -> None:
        """A step's tokens are all places of its batch; its time is all since the step before, the data's included."""
        values = {name: float(value) for name, value in metrics.items()}  # waits for the device
        self.skipped = values["train/skipped"] = (self.skipped + 1) * values["train/skipped"]
        now = time.perf_counter()
        self.seconds.append(now - self.clock)
        self.clock = now
        seconds = sum(self.seconds) / len(self.seconds)
        speed = self.config.batch_size * self.config.sequence_length / seconds
        self.record(step, values | {"train/tokens_per_second": speed})
        if self.skipped > self.config.max_skipped:
            raise InputError(f"no finite gradients in {self.skipped:.0f} steps up to {step}: lower --learning-rate")
        full, causal = (speed * flops_per_token(self.config, causal) / self.peak for causal in (False, True))
        text = f"loss {values['train/loss']:.4f} {speed:,.0f} tokens/s MFU {full:.1%} full {causal:.1%} causal"
        self.progress.update(self.task, completed=step, description=text)
        if self.progress.disable and (now - self.line > 10 or step == self.config.steps):
            self.line = now
            minutes = seconds * (self.config.steps - step) / 60
            print(f"step {step}/{self.config.steps} {text} ETA {minutes:.1f} min", flush=True)

    def flush(self) -> None:
        """Puts all in the directory; the time up to now belongs to no step.

        An object store takes whole files, which grow with the run: uploads take at most 2 % of the time.
        """
        with self.shows("TensorBoard events"):
            self.events.flush()
        if time.perf_counter() - self.uploaded > 50 * self.upload_seconds:
            self.upload()
        self.clock = time.perf_counter()

    def upload(self) -> None:
        start = time.perf_counter()
        with self.shows("upload"):
            upload(self.local, self.directory)
        self.uploaded = time.perf_counter()
        self.upload_seconds = self.uploaded - start

    def close(self) -> None:
        """Draws the losses of the whole run, and where its time went."""
        for what, close in ("progress", self.progress.stop), ("events", self.events.close), ("file", self.file.close):
            with self.shows(what):
                close()
        with self.shows("loss.png"):
            self.draw()
        self.upload()

    def draw(self) -> None:
        points = {name: ([], []) for name in ("train/loss", "eval/loss")}  # steps and values
        steps, shares = [0], []
        with open(self.metrics_path, "rb") as file:
            for line in file:
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # a line that is no record
                    record = json.loads(line)
                    for name in points.keys() & record.keys():
                        points[name][0].append(record["step"])
                        points[name][1].append(record[name])
                    if "goodput/steps" in record:
                        shares.append([record[f"goodput/{part}"] for part in Goodput.PARTS])
                        steps.append(record["step"])
        figure = Figure(figsize=(9, 7), layout="constrained")
        axes, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        for (name, (x, y)), style in zip(points.items(), ("-", "o-"), strict=True):
            axes.plot(x, y, style, label=name)
        axes.set(ylabel="cross-entropy (nats per token)")
        axes.grid(alpha=0.3)
        if shares:
            parts = zip(shares[0], *shares, strict=True)  # from step 0 on as at the first record
            lower.stackplot(steps, *parts, labels=Goodput.PARTS, colors=colormaps["Set2"].colors)
        lower.set(xlabel="step of the optimizer", ylabel="share of the time", ylim=(0, 1))
        for part in (axes, lower) if shares else (axes,):
            part.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(self.local / "loss.png", dpi=150)
