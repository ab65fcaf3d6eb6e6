"""Compares a package with the model of transformers that it stands for: `gen parity`."""

from __future__ import annotations

import importlib.util
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
from generator.commands.console import AS_JSON, PATH, exit_codes, write_json
from generator.commands.tables import Table, format_text
from generator.disk.project import Project
from generator.errors import LoomError, printable, short
from generator.weaver import weave

if TYPE_CHECKING:
    from generator.checkpoint.comparisons import Compared
    from generator.package.package import Package

NEEDED = ("torch", "transformers", "jax", "flax", "grain", "optax", "orbax", "safetensors", "tyro")
DEVICES = "--xla_force_host_platform_device_count=2"
FIX = "Fix the fragment at that line; or, where it is built in, report it with this config.json."
WHERE = "Splices at hf.sizes name settings, at hf.layer_tensors tensors; layers give shapes: fix those."
UNREAD = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".npz")  # ends of files with weights


@click.command("parity", **exit_codes("1 a comparison failed"))
@click.argument("architecture", metavar="ARCH")
@click.argument("folder", metavar="HF_DIR", type=PATH)
@click.option("--target", metavar="T", default="cpu", show_default=True, help="What the package is woven for.")
@click.option(
    "--tokens", metavar="N", type=click.IntRange(16), default=64, show_default=True, help="In each of two rows."
)
@AS_JSON
def command(architecture: str, folder: Path, target: str, tokens: int, as_json: bool) -> None:
    """Compare a package with the model of transformers that it stands for.

    HF_DIR is a folder that AutoModelForCausalLM of transformers loads; with its config.json alone, weights are random.
    The package is woven to a temporary folder and loads the same checkpoint. Compared are logits, loss and the gradient
    of each tensor, all in fp32; what an export gives back; greedy decoding with a cache; and, where there are two
    devices and sizes divide, loss and gradients of training with --mesh-tensor 2. Nothing is made smaller. What was
    compared is shown also where an error ends one of the comparisons.
    """
    try:
        found = parity(Project.find(), architecture, folder, target, tokens, lambda line: click.echo(line, err=True))
    except Stopped as error:
        _write(error.found, as_json)
        raise
    _write(found, as_json)
    if not all(row.holds for row in found):
        raise click.exceptions.Exit(1)


def _write(found: list[Compared], as_json: bool) -> None:
    """Writes comparisons, and how many of them hold."""
    held = sum(row.holds for row in found)
    if as_json:
        write_json([{**row._asdict(), "holds": row.holds} for row in found])
    elif found:
        click.echo(format_text(parity_table(found)))
        click.echo(f"{held} of {len(found)} hold" if held < len(found) else f"all {held} hold")


class Stopped(LoomError):
    """An error that ended a comparison, with the others that were made."""

    def __init__(self, message: str, shown: str, remedy: str, found: list[Compared]):
        super().__init__(message, shown, remedy)
        self.found = found


def parity(
    project: Project, architecture: str, folder: Path, target: str, length: int, say: Callable[[str], None]
) -> list[Compared]:
    """Weaves a package, has it load a checkpoint, and compares it with the model that transformers makes of that.

    Args:
        folder: with config.json and safetensors, or with config.json alone: then weights are random.
        length: tokens in each of the two rows that are read.
        say: is told what is compared, and how large it is, before that starts.

    Raises:
        Stopped: the package, or transformers, failed.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        remedy = "Install what is missing: in a clone of Loomax, pip install -e '.[packages]' torch transformers"
        raise LoomError(f"gen parity needs {', '.join(missing)}", None, remedy)
    shown = project.display_path(folder)
    if not (folder / "config.json").exists():
        lacking = folder / "config.json" if folder.is_dir() else folder
        reason = "is not a folder" if folder.is_file() else "is not there"
        raise LoomError(reason, project.display_path(lacking), "Give a folder with config.json.")
    hf = read_config(folder / "config.json", project.display_path(folder / "config.json"))
    if hf.get("quantization_config"):
        remedy = "Load it with transformers, which dequantizes, save it to another folder, and give that one."
        raise LoomError("its tensors are quantized, and parity compares in fp32", shown, remedy)
    weights = _weights(folder, shown)
    used = f"weights: {', '.join(it.name for it in weights)}" if weights else "random weights: the folder has none"
    woven = weave(architecture, target, project.library())
    if target == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if "jax" not in sys.modules and "device_count" not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}"
    # late, as torch and jax take seconds
    from generator.checkpoint.comparisons import SHARDS, compare_models, load_package
    from generator.checkpoint.reference import count_parameters, load_reference

    with tempfile.TemporaryDirectory(prefix="gen_parity_") as name:
        scratch = Path(name)
        for path, text in woven.files.items():
            (scratch / woven.name / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / woven.name / path).write_text(text, encoding="utf-8")
        size = count_parameters(folder, shown)
        say(
            f"{woven.name} against {printable(hf['model_type'])} of transformers: {size:,} parameters, "
            f"2 x {length} tokens; {short(used)}; "
            f"takes about {_bytes(40 * size)} of memory and {_bytes(12 * size)} in {scratch.parent}"
        )
        for setting, reach in _longer(hf, length):
            say(f"note: {setting} is {reach:,}, and {length} tokens do not reach it: see --tokens")
        reference = load_reference(folder, shown, weights, hf, scratch / "checkpoint")
        try:
            package = load_package(scratch / woven.name)
        except Exception as error:  # of any class, as the package is anybody's
            raise Stopped(f"{woven.name} fails: {_reason(error, woven)}", shown, FIX, []) from None
        try:
            loaded = package.huggingface.load_hf(scratch / "checkpoint")
        except package.errors.InputError as error:
            names = {field.replace("_", "-"): setting for setting, field in package.huggingface.hf_sizes()}
            listed = str(error).replace(str(scratch / "checkpoint"), shown)
            listed = re.sub(r"--([\w-]+)", lambda it: names.get(it[1], it[0]), listed)
            unsaid = re.search("is missing: add it|\n *(missing|unknown): ", listed)  # any other says what to do
            raise LoomError(f"{woven.name} does not load it:\n  {listed}", shown, WHERE if unsaid else None) from None
        except Exception as error:
            raise Stopped(f"{woven.name} does not load it: {_reason(error, woven)}", shown, WHERE, []) from None
        found, errors = compare_models(package, loaded, reference, scratch, length)
    if not any(row.what.startswith("--mesh") for row in found) and f"--mesh-tensor {SHARDS}" not in errors:
        say(f"note: --mesh-tensor {SHARDS} was not tried: sizes do not divide by it, or there is one device")
    if errors:
        listed = "\n  ".join(f"{what}: {_reason(error, woven)}" for what, error in errors.items())
        raise Stopped(f"{woven.name} could not be compared in all:\n  {listed}", shown, FIX, found)
    return found


def _reason(error: Exception, woven: Package) -> str:
    """Returns what an error says, with the fragment of the last line of the package that it went through."""
    reason = short(f"{type(error).__name__}: {error}", 500)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folder, file = os.path.split(frame.filename)
        if os.path.basename(folder) == woven.name and (lines := woven.origins.get(file)) and frame.lineno:
            return f"{reason}, at {lines[frame.lineno - 1][0][1]}"
    return reason


def _weights(folder: Path, shown: str) -> list[Path]:
    """Returns the files with a folder's weights, all of safetensors."""
    weights, parts = sorted(folder.glob("*.safetensors")), sorted(it.name for it in folder.iterdir())
    if others := [] if weights else [name for name in parts if name.endswith((*UNREAD, ".safetensors.index.json"))]:
        remedy = (
            "Save it as safetensors, by transformers, to another folder; or give config.json alone for random weights."
        )
        raise LoomError(f"has {short(', '.join(others))}, and no safetensors file of weights", shown, remedy)
    return weights


def _longer(hf: dict[str, Any], length: int) -> list[tuple[str, int]]:
    """Returns the windows and chunks of attention that so many tokens do not fill."""
    reaches = {name: value for name, value in hf.items() if name.endswith(("sliding_window", "attention_chunk_size"))}
    return [(name, value) for name, value in reaches.items() if isinstance(value, int) and value >= length]


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count > 1e10 else f"{count / 1e6:,.0f} MB"


def parity_table(found: list[Compared]) -> Table:
    """Returns the comparisons for people."""
    rows = [(row.what, f"{row.difference:.2g}", f"{row.bound:.2g}", "ok" if row.holds else "FAILED") for row in found]
    note = "Gradients: relative to the norm of the tensor's; of all layers the largest."
    return Table("", ("what", "largest difference", "bound", ""), rows, note)
