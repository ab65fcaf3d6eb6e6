"""A page about a run, report.html: one file, which needs no network and runs no script."""

import contextlib
import datetime
import html
import importlib.metadata
import json
import math
import platform
import resource
import string
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import jax
from etils import epath

from generator.language import point, requires, splice
from generator.language.roles import PRESETS, Config, Curve, draw_charts, flops_per_token, format_number, may_fail

requires("report/curves", "train/outputs")

INTERVAL = 20  # seconds between two pages at least
GREATEST = 1e300  # what is drawn; the heights of a chart are sums
# what a line of JSON raises that is no record
NO_RECORD = ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
LIBRARIES = "jax", "flax", "optax", "orbax-checkpoint"


def nearest_preset(config: Config) -> tuple[str, dict[str, tuple[object, object]]]:
    """Returns the preset that differs least, and what differs: the setting's value, and the preset's."""
    settings = vars(config).items()
    differing = {
        name: {field: (value, other) for field, value in settings if value != (other := getattr(preset, field))}
        for name, preset in PRESETS.items()
    }
    nearest = min(differing, key=lambda name: len(differing[name]))
    return nearest, differing[nearest]


def memory_use() -> dict[str, str]:
    """Returns the most memory that this process, and the fullest of its devices, have had so far."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, of ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    use = {"host memory": f"{peak / 2**30:.2f} GiB"}
    all_stats = [device.memory_stats() or {} for device in jax.local_devices()]  # CPUs have none
    stats = max(all_stats, key=lambda stats: stats.get("peak_bytes_in_use", 0))
    if "peak_bytes_in_use" in stats:
        limit = f" of {stats['bytes_limit'] / 2**30:.2f}" if "bytes_limit" in stats else ""
        use["device memory"] = f"{stats['peak_bytes_in_use'] / 2**30:.2f}{limit} GiB"
    return use


def versions() -> dict[str, str]:
    """Returns the versions of what a run depends on, and its devices."""
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    devices = f"{jax.device_count()} {jax.devices()[0].device_kind}"
    return {"devices": devices, "processes": str(jax.process_count()), "python": platform.python_version()} | libraries


def duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def draw_rows(rows: Iterable[Iterable[object]]) -> str:
    """Returns rows of a table, in which every cell is text."""
    cells = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return "".join(f"<tr>{row}</tr>\n" for row in cells)


class Report:
    """Draws report.html now and then while a run goes, and once it is over.

    `shares` are what one token a second is of the devices' peak FLOP/s: attention counted in full, and its causal half.
    """

    def __init__(self, folder: epath.Path, config: Config, shares: list[float], peak: str):
        self.path = folder / "report.html"
        self.config = config
        self.shares, self.peak = shares, peak
        self.state = "running"
        self.error = ""
        self.step = 0
        self.curves: dict[str, Curve] = {}
        self.began = time.perf_counter()
        self.drawn = -math.inf  # when the last page was
        self.seconds = 0.0  # that it took

    def resume(self, metrics: epath.Path) -> None:
        """Takes the metrics of earlier starts from a file of JSON lines."""
        with open(metrics, "rb") as file:
            for line in file:
                with contextlib.suppress(*NO_RECORD):
                    record = json.loads(line)
                    if (step := int(record.pop("step"))) >= 0:
                        self.record(step, record)

    def record(self, step: int, metrics: dict[str, float]) -> None:
        self.step = step
        for name, value in metrics.items():
            if isinstance(value, float | int) and abs(value) < GREATEST:  # nor NaN
                self.curves.setdefault(name, Curve()).add(step, value)

    def add(self, step: int, metrics: dict[str, float]) -> None:
        """Records metrics; draws the page if that was INTERVAL ago, and takes less than 1 % of the time."""
        self.record(step, metrics)
        if time.perf_counter() - self.drawn > max(INTERVAL, 100 * self.seconds):
            self.draw()

    def end(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        """Notes how the run ends."""
        self.state = "stopped" if self.step < self.config.steps else "ended"
        if error and kind is not KeyboardInterrupt:
            self.state = "failed"
            self.error = f"{kind.__name__}: {error}"

    def draw(self) -> None:
        """Writes the page in place of the one before, all at once."""
        self.drawn = time.perf_counter()
        half = self.path.with_name("report.half")
        try:
            half.write_bytes(self.page().encode(errors="replace"))
            half.replace(self.path)
        finally:
            half.unlink(missing_ok=True)
        self.seconds = time.perf_counter() - self.drawn

    def numbers(self) -> dict[str, str]:
        """Returns the numbers at the top of the page, by what they are."""
        last = {name: curve.last[1] for name, curve in self.curves.items()}
        numbers = {"step": f"{self.step:,} of {self.config.steps:,}"}
        speed = last.get("train/tokens_per_second", 0)
        if speed > 0 and self.state == "running":
            tokens = (self.config.steps - self.step) * self.config.batch_size * self.config.sequence_length
            numbers["time left"] = duration(min(tokens / speed, 1e12))
        numbers["since this start"] = duration(time.perf_counter() - self.began)
        titles = {"train/loss": "loss", "eval/loss": "held-out loss", "train/tokens_per_second": "tokens/s"}
        point("Report.titles", titles)
        numbers |= {title: format_number(last[name]) for name, title in titles.items() if name in last}
        if speed and math.isfinite(self.shares[0]):
            full, causal = (f"{100 * speed * share:.1f}" for share in self.shares)
            numbers["MFU in %"] = f"{full} / {causal}"
        return numbers | memory_use()

    def page(self) -> str:
        preset, differing = nearest_preset(self.config)
        with point("Report.charts", self):
            results = draw_charts(self.curves)
        point("Report.results", self, results)
        numbers = (f"<div><dt>{title}</dt><dd>{number}</dd></div>\n" for title, number in self.numbers().items())
        texts = {
            "state": self.state,
            "error": self.error,
            "step": self.step,
            "steps": self.config.steps,
            "preset": preset,
            "directory": self.config.checkpoint_dir or self.path.parent,
            "peak": self.peak,
            "time": time.strftime("%F %T UTC", time.gmtime()),
        }
        parts = {
            "refresh": '<meta http-equiv="refresh" content="30">' if self.state == "running" else "",
            "numbers": "".join(numbers),
            "results": results,
            "settings": draw_rows((name, *values) for name, values in differing.items()),
            "versions": draw_rows(versions().items()),
        }
        template = string.Template(Path(__file__).with_name("report.html").read_text())
        return template.substitute({name: html.escape(str(text)) for name, text in texts.items()}, **parts)


@splice("Monitor.parameters", after="outputs")
def _(self, config, meaning):
    shares = [flops_per_token(config, causal) / self.peak for causal in (False, True)]
    self.report = Report(self.folder, config, shares, meaning)
    with may_fail("report.html", self.failed):
        self.report.resume(self.metrics_path)


@splice("Monitor.logged")
def _(self, step, metrics):
    with may_fail("report.html", self.failed):
        self.report.add(step, metrics)


@splice("train.monitored")
def _(stack, monitor):
    stack.push(monitor.report.end)


@splice("Monitor.close")
def _(self):
    with may_fail("report.html", self.failed):
        point("Monitor.draw_report")
        self.report.draw()
