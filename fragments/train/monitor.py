"""Progress, TensorBoard events and a loss curve."""

import collections
import json
import math
import sys
import time

import jax
from etils import epath
from jax import Array
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


class Monitor:
    """Shows and records a run: a progress bar or lines, metrics.jsonl, TensorBoard events, loss.png."""

    def __init__(self, directory: epath.Path, config: Config, step: int):
        """Goes on after `step`: what a killed run wrote of later steps is dropped, as these steps come again."""
        self.directory, self.local, self.config = directory, local_folder(directory), config
        self.peak, meaning = peak_flops(config.dtype)
        print(f"MFU: share of {meaning}; attention counted in full, or its causal half", flush=True)
        self.local.mkdir(parents=True, exist_ok=True)
        if self.local != directory and (directory / "metrics.jsonl").exists():
            (directory / "metrics.jsonl").copy(self.local / "metrics.jsonl")
        self.file = open(self.local / "metrics.jsonl", "a+", buffering=1)
        self.file.seek(0)
        lines = [line for line in self.file if line.endswith("\n")]  # the last one may be half a line
        self.history = [record for record in map(json.loads, lines) if record["step"] <= step]
        self.file.truncate(sum(map(len, lines[: len(self.history)])))  # characters are bytes, as JSON is ASCII here
        self.events = SummaryWriter(str(self.local / "tensorboard"), purge_step=step + 1)
        columns = "{task.completed}/{task.total}", BarColumn(None), "{task.description}", "ETA", TimeRemainingColumn()
        self.progress = Progress(*columns, expand=True, disable=not sys.stdout.isatty())
        self.task = self.progress.add_task("", completed=step, total=config.steps)
        self.progress.start()
        self.skipped = 0  # steps in a row
        self.seconds = collections.deque(maxlen=20)  # of the last steps
        self.clock, self.line = time.perf_counter(), -math.inf  # when the last step ended and the last line was printed

    def record(self, step: int, values: dict[str, float]) -> None:
        values = {name: value for name, value in values.items() if math.isfinite(value)}  # JSON has no others
        self.history.append({"step": step, **values})
        self.file.write(json.dumps(self.history[-1]) + "\n")
        if jax.process_index() == 0:
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
        """Puts all in the directory; the time up to now belongs to no step."""
        self.events.flush()
        upload(self.local, self.directory)
        self.clock = time.perf_counter()

    def close(self) -> None:
        """Draws the losses of the whole run, and where its time went."""
        self.progress.stop()
        self.events.close()
        self.file.close()
        figure = Figure(figsize=(8, 7), layout="constrained")
        axes, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        for name, style in {"train/loss": "-", "eval/loss": "o-"}.items():
            points = [(record["step"], record[name]) for record in self.history if name in record]
            axes.plot([x for x, _ in points], [y for _, y in points], style, label=name)
        axes.set(ylabel="cross-entropy (nats per token)")
        axes.grid(alpha=0.3)
        shares = [record for record in self.history if "goodput/steps" in record]
        parts = [[record[f"goodput/{part}"] for record in shares] for part in Goodput.PARTS]
        lower.stackplot([record["step"] for record in shares], parts, labels=Goodput.PARTS)
        lower.set(xlabel="step of the optimizer", ylabel="share of the time")
        figure.legend(loc="outside right upper")
        figure.savefig(self.local / "loss.png", dpi=150)
        upload(self.local, self.directory)
