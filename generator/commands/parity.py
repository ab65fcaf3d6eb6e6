"""Compares a package with its reference, the model of transformers: `gen parity`."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from generator.checkpoint.files import read_config
from generator.commands.console import AS_JSON, PATH, Status, exit_codes, write_json
from generator.disk.project import Project
from generator.errors import LoomError, printable, short
from generator.weaver import weave

if TYPE_CHECKING:
    from generator.checkpoint.comparisons import Comparison
    from generator.package.package import Package

REFERENCE = ("torch", "transformers")
NEEDED = (*REFERENCE, "jax", "flax", "grain", "optax", "orbax", "safetensors", "tyro")
TOKENS = 64  # in each row, unless another number is given
HEADER = "what", "largest difference", "bound", ""
DEVICES = "--xla_force_host_platform_device_count=2"
FIX = "Fix the fragment at that line; or, where it is built in, report it with this config.json."
WHERE = "Splices at hf.sizes name settings, at hf.layer_tensors tensors; layers give shapes: fix those."
_PADDING = (
    "transformers gives the embedding of token {}, its pad_token_id, no gradient, and the package does: it is left out"
)
OTHER_FORMATS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".npz")  # of weights


@click.command("parity", **exit_codes("1 a comparison failed"))
@click.argument("architecture", metavar="ARCH")
@click.argument("folder", metavar="HF_DIR", type=PATH)
@click.option("--target", metavar="T", default="cpu", show_default=True, help="The target of the package.")
@click.option(
    "--tokens",
    metavar="N",
    type=click.IntRange(16),
    default=TOKENS,
    show_default=True,
    help="The number of tokens in each of two rows.",
)
@AS_JSON
def command(architecture: str, folder: Path, target: str, tokens: int, as_json: bool) -> None:
    """Compare a package with its reference, the model of transformers.

    HF_DIR is a folder that AutoModelForCausalLM of transformers loads; with its config.json alone, weights are random.
    The package is woven to a temporary folder and loads the same checkpoint. Compared are logits, loss and the gradient
    of each tensor, all in fp32; the export of the imported checkpoint; greedy decoding with a cache; and, if there are
    two devices and sizes divide, loss and gradients of training with --mesh-tensor 2. Nothing is made smaller. If one
    comparison ends with an error, the others are shown too.
    """

    if not show_parity(Project.find(), architecture, folder, target, tokens, as_json):
        raise click.exceptions.Exit(1)


def show_parity(
    project: Project,
    architecture: str,
    folder: Path,
    target: str,
    tokens: int = TOKENS,
    as_json: bool = False,
    most_memory: float = math.inf,
) -> bool:
    """Compares a package with its reference, and shows each step; returns whether all comparisons hold.

    Args:
        most_memory: bytes; what takes more is refused.
    """
    header = iter([HEADER])  # which stands above the first rows alone

    def show(rows: list[Comparison]) -> None:
        cells = [
            (row.what, f"{row.difference:.2g}", f"{row.bound:.2g}", "ok" if row.holds else "FAILED") for row in rows
        ]
        for what, difference, bound, verdict in [*header, *cells] if not as_json else ():
            click.echo(f"  {what:<50}  {difference:<18}  {bound:<7}  {verdict}".rstrip())

    try:
        with Status() as status:
            rows = parity(project, architecture, folder, target, tokens, status.report, show, most_memory)
    except ParityError as error:
        _write_summary(error.rows, as_json)
        raise
    _write_summary(rows, as_json)
    return all(row.holds for row in rows)


def _write_summary(rows: list[Comparison], as_json: bool) -> None:
    """Writes how many comparisons hold, or all of them as JSON."""
    held = sum(row.holds for row in rows)
    if as_json:
        write_json([{**row._asdict(), "holds": row.holds} for row in rows])
    elif rows:
        click.echo("  Gradients: relative to the norm of the tensor's; of all layers the largest.")
        click.echo(f"{held} of {len(rows)} hold" if held < len(rows) else f"all {held} hold")


class ParityError(LoomError):
    """An error that ended a comparison, with the rows of the others."""

    def __init__(self, message: str, where: str, remedy: str | None, rows: list[Comparison]):
        super().__init__(message, where, remedy)
        self.rows = rows


def parity(
    project: Project,
    architecture: str,
    folder: Path,
    target: str,
    length: int,
    report: Callable[[str], None],
    show: Callable[[list[Comparison]], None],
    most_memory: float = math.inf,
) -> list[Comparison]:
    """Weaves a package, loads a checkpoint with it, and compares it with the model that transformers loads.

    Args:
        folder: has config.json and safetensors, or config.json alone: then weights are random.
        length: tokens in each of two rows.
        report: prints a line: the sides and their sizes, each step before it runs, and what is not compared.
        show: prints the comparisons of a step.
        most_memory: bytes; a comparison that takes more is refused.

    Raises:
        ParityError: the package, or transformers, failed.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        remedy = "Install what is missing: in a clone of Loomax, pip install -e '.[packages]' torch transformers"
        raise LoomError(f"gen parity needs {', '.join(missing)}", None, remedy)
    where = project.display_path(folder)
    if not (folder / "config.json").exists():
        missing_path = folder / "config.json" if folder.is_dir() else folder
        reason = "is not a folder" if folder.is_file() else "does not exist"
        raise LoomError(reason, project.display_path(missing_path), "Give a folder with config.json.")
    hf = read_config(folder / "config.json", project.display_path(folder / "config.json"))
    if hf.get("quantization_config"):
        remedy = "Load it with transformers, which dequantizes, save it to another folder, and give that one."
        raise LoomError("its tensors are quantized, and parity compares in fp32", where, remedy)
    weights = find_weights(folder, where)
    source = (
        f"weights: {', '.join(path.name for path in weights)}" if weights else "random weights: the folder has none"
    )
    woven = weave(architecture, target, project.library())
    if target == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if "jax" not in sys.modules and "device_count" not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}"
    # late, as torch and jax take seconds
    from generator.checkpoint.comparisons import SHARDS, compare_models
    from generator.checkpoint.loading import load_package
    from generator.checkpoint.reference import count_parameters, load_reference

    with tempfile.TemporaryDirectory(prefix="gen_parity_") as name:
        scratch = Path(name)
        for path, text in woven.files.items():
            (scratch / woven.name / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / woven.name / path).write_text(text, encoding="utf-8")
        size = count_parameters(folder, where)
        if 40 * size > most_memory:
            needed, there = _format_bytes(40 * size), _format_bytes(most_memory)
            raise LoomError(f"takes about {needed} of memory, and there are {there}", where, "Use a larger machine.")
        report(
            f"{woven.name} against {printable(hf['model_type'])} of transformers: {size:,} parameters, "
            f"2 x {length} tokens; {short(source)}; "
            f"takes about {_format_bytes(40 * size)} of memory and {_format_bytes(12 * size)} in {scratch.parent}"
        )
        for setting, reach in _find_long_windows(hf, length):
            report(f"note: {setting} is {reach:,}, and {length} tokens do not reach it: see --tokens")
        report("loading with transformers ...")
        reference = load_reference(folder, where, weights, hf, scratch / "checkpoint")
        if (padding := getattr(reference.get_input_embeddings(), "padding_idx", None)) is not None:
            report(f"note: {_PADDING.format(padding)}")
        report(f"loading with {woven.name} ...")
        try:
            package = load_package(scratch / woven.name)
        except Exception as error:  # of any class, as the package is anybody's
            raise ParityError(f"{woven.name} fails: {_explain_failure(error, woven)}", where, FIX, []) from None
        try:
            loaded = package.huggingface.load_hf(scratch / "checkpoint")
        except package.errors.InputError as error:
            names = {field.replace("_", "-"): setting for setting, field in package.huggingface.hf_sizes()}
            listed = str(error).replace(str(scratch / "checkpoint"), where)
            listed = re.sub(r"--([\w-]+)", lambda it: names.get(it[1], it[0]), listed)
            without_remedy = re.search("is missing: add it|\n *(missing|unknown): ", listed)
            hint = WHERE if without_remedy else None
            raise ParityError(f"{woven.name} does not load it:\n  {listed}", where, hint, []) from None
        except Exception as error:
            raise ParityError(
                f"{woven.name} does not load it: {_explain_failure(error, woven)}", where, WHERE, []
            ) from None
        rows, errors = compare_models(package, loaded, reference, scratch, length, report, show)
    if not any(row.what.startswith("--mesh") for row in rows) and f"--mesh-tensor {SHARDS}" not in errors:
        report(f"note: --mesh-tensor {SHARDS} was not tried: sizes do not divide by it, or there is one device")
    if not hasattr(package, "engine"):
        report("note: cached decoding was not compared: the model cannot have the part serve")
    if errors:
        listed = "\n  ".join(f"{what}: {_explain_failure(error, woven)}" for what, error in errors.items())
        raise ParityError(f"{woven.name} could not be compared in all:\n  {listed}", where, FIX, rows)
    return rows


def _explain_failure(error: Exception, woven: Package) -> str:
    """Returns the message of an error, with the origin of the innermost line of the package in its traceback."""
    reason = short(f"{type(error).__name__}: {error}", 500)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folder, file = os.path.split(frame.filename)
        if os.path.basename(folder) == woven.name and (lines := woven.origins.get(file)) and frame.lineno:
            return f"{reason}, at {lines[frame.lineno - 1][0][1]}"
    return reason


def find_memory() -> float:
    """Returns the bytes of memory that this process may use."""
    bound, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else ""
    return min(bound, int(text)) if text.isdecimal() else bound


def find_weights(folder: Path, where: str) -> list[Path]:
    """Returns the safetensors files of a folder; refuses weights in other formats alone."""
    weights, names = sorted(folder.glob("*.safetensors")), sorted(path.name for path in folder.iterdir())
    others = [name for name in names if name.endswith((*OTHER_FORMATS, ".safetensors.index.json"))]
    if others and not weights:
        remedy = "Save it with transformers as safetensors, in another folder; or give config.json alone."
        raise LoomError(f"has {short(', '.join(others))}, and no safetensors file of weights", where, remedy)
    return weights


def _find_long_windows(hf: dict[str, Any], length: int) -> list[tuple[str, int]]:
    """Returns the settings of windows and chunks of attention that `length` tokens do not fill, with their sizes."""
    reaches = {name: value for name, value in hf.items() if name.endswith(("sliding_window", "attention_chunk_size"))}
    return [(name, value) for name, value in reaches.items() if isinstance(value, int) and value >= length]


def _format_bytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count > 1e10 else f"{count / 1e6:,.0f} MB"
