"""Monitoring: prints a line now and then, and records all numbers in metrics.jsonl."""

import collections
import contextlib
import json
import math
import tempfile
import time

import jax
from etils import epath
from jax import Array

from generator.language import point
from generator.language.roles import Config, InputError, NonNegativeInt, flops_per_token, peak_flops


class TrainConfig:
    max_skipped: NonNegativeInt = 10  # steps in a row skipped for lack of finite gradients; one more ends the run


def drop_later_records(path: epath.Path, step: int) -> None:
    """Truncates a file of JSON lines at the first record after `step` or half line; creates it if missing."""
    with open(path, "ab+") as file:
        file.seek(0)
        size = 0  # of the records that stay
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):  # not a record: stays
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
            size += len(line)
        file.truncate(size)


class Monitor:
    """Shows and records a run."""

    def __init__(self, directory: epath.Path, config: Config, step: int):
        """Resumes after `step`: drops what a killed run wrote of later steps, as they come again."""
        self.config = config
        self.others = tempfile.TemporaryDirectory()  # only process 0 writes to the directory
        self.folder = directory if jax.process_index() == 0 else epath.Path(self.others.name)
        with point("Monitor.peak", config):
            self.peak, meaning = peak_flops()
        print(f"MFU: share of {meaning}; attention counted in full, or its causal half", flush=True)
        point("Monitor.folder")
        self.metrics_path = self.folder / "metrics.jsonl"
        drop_later_records(self.metrics_path, step)
        self.file = open(self.metrics_path, "a", buffering=1)
        self.skipped = 0  # steps in a row
        self.seconds = collections.deque(maxlen=20)  # seconds per step, the last 20
        self.clock = time.perf_counter()  # when the last step came
        self.printed = -math.inf  # and the last line
        point("Monitor.parameters", step, config, meaning)

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Writes metrics to metrics.jsonl. For others too: `if jax.process_index() == 0: wandb.log(metrics, step)`."""
        point("Monitor.write")
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}  # JSON has no others
        with point("Monitor.line"):
            print(json.dumps({"step": step, "time": time.strftime("%FT%TZ", time.gmtime()), **metrics}), file=self.file)
        point("Monitor.logged", step, metrics)

    def step(self, step: int, metrics: dict[str, Array]) -> None:
        """Records a step: its tokens are all positions of its batch, its time is all since the step before.

        Raises InputError if too many steps in a row had no finite gradients.
        """
        point("Monitor.wait")
        values = {name: float(value) for name, value in metrics.items()}  # waits for the device
        self.skipped = self.skipped + 1 if values["train/skipped"] else 0
        values["train/skipped"] = self.skipped
        now = time.perf_counter()
        self.seconds.append(now - self.clock)
        self.clock = now
        seconds = sum(self.seconds) / len(self.seconds)
        speed = self.config.batch_size * self.config.sequence_length / seconds
        self.log_metrics(step, values | {"train/tokens_per_second": speed})
        if self.skipped > self.config.max_skipped:
            raise InputError(f"no finite gradients in {self.skipped} steps up to {step}: lower --learning-rate")
        full, causal = (speed * flops_per_token(self.config, causal) / self.peak for causal in (False, True))
        text = f"epoch {values['train/epoch']:.2f} loss {values['train/loss']:.4f}"
        with point("Monitor.speed", text, speed, full, causal):
            text += f" {speed:,.0f} tokens/s MFU {full:.1%} full {causal:.1%} causal"
        point("Monitor.text", text, values)
        with point("Monitor.show", step, text, now):
            if now - self.printed > 10 or step == self.config.steps:
                self.printed = now
                minutes = seconds * (self.config.steps - step) / 60
                print(f"step {step}/{self.config.steps} {text} ETA {minutes:.1f} min", flush=True)

    def restart_clock(self) -> None:
        """Leaves the time since the last step out of the next step's."""
        point("Monitor.restart_clock")
        self.clock = time.perf_counter()

    def close(self) -> None:
        with point("Monitor.close_file"):
            self.file.close()
        point("Monitor.close")
        self.others.cleanup()
