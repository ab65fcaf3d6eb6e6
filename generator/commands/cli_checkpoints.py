"""The command line of what begins with a checkpoint: `gen new` and `gen parity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.commands.console import AS_JSON, NO_ONE, PATH, exit_codes, write_json

if TYPE_CHECKING:
    from generator.checkpoint.comparisons import Compared


@click.command("new", **NO_ONE)
@click.option("--from-hf", "config", metavar="FILE", required=True, type=PATH, help="config.json")
@click.option("--target", metavar="T", required=True, help="What the package is to run on; see gen list.")
@click.option("--name", metavar="NAME", required=True, help="Of the architecture.")
@click.option("--ignore", metavar="SETTING", multiple=True, help="Of config.json: accept what no fragment covers.")
@click.option("--as", "family", metavar="ARCH", default="", help="Start from this one, whatever the model_type.")
def new_(config: Path, target: str, name: str, ignore: tuple[str, ...], family: str) -> None:
    """Write an architecture file for a checkpoint, from its config.json.

    The family is chosen by model_type, and its structure (tied embeddings, which layers are sparse, ...) by the
    settings; sizes become a preset. Settings that no fragment covers are an error that names all of them; --ignore
    accepts one, and is written to the architecture file.

    Where no architecture has the model_type, the nearest is named, with what differs from it: in settings and, where
    the checkpoint or its model.safetensors.index.json is beside config.json, in tensors. --as ARCH writes the file all
    the same, with these differences as comments to work through.
    """
    from generator.commands.new import new
    from generator.disk.project import Project

    project = Project.find()
    family, path, differences = new(project, config, target, name, ignore, family)
    task = f"work through the {differences} differences that it lists, then " if differences else ""
    click.echo(f"{project.show(path)}: as {family}; next: {task}gen build {name} --target={target}")


@click.command("parity", **exit_codes("1 a comparison failed"))
@click.argument("architecture", metavar="ARCH")
@click.argument("folder", metavar="HF_DIR", type=PATH)
@click.option("--target", metavar="T", default="cpu", show_default=True, help="What the package is woven for.")
@click.option(
    "--tokens", metavar="N", type=click.IntRange(16), default=64, show_default=True, help="In each of two rows."
)
@AS_JSON
def parity_(architecture: str, folder: Path, target: str, tokens: int, as_json: bool) -> None:
    """Compare a package with the model of transformers that it stands for.

    HF_DIR is a folder that AutoModelForCausalLM of transformers loads; with its config.json alone, weights are random.
    The package is woven to a temporary folder and loads the same checkpoint. Compared are logits, loss and the gradient
    of each tensor, all in fp32; what an export gives back; greedy decoding with a cache; and, where there are two
    devices and sizes divide, loss and gradients of training with --mesh-tensor 2. Nothing is made smaller. What was
    compared is shown also where an error ends one of the comparisons.
    """
    from generator.commands.parity import Stopped, parity
    from generator.disk.project import Project

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
    from generator.commands.parity import table
    from generator.commands.tables import plain

    held = sum(row.holds for row in found)
    if as_json:
        write_json([{**row._asdict(), "holds": row.holds} for row in found])
    elif found:
        click.echo(plain(table(found)))
        click.echo(f"{held} of {len(found)} hold" if held < len(found) else f"all {held} hold")
