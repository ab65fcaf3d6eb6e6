"""Writes an architecture file for a checkpoint, from its config.json: `gen new`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

from generator.checkpoint.draft import find_nearest_family, write_draft
from generator.checkpoint.files import read_config, read_tensor_names
from generator.checkpoint.fit import fit
from generator.checkpoint.kind_of_model import describe_other_kind
from generator.checkpoint.layers import KindError
from generator.checkpoint.problems import MAX_LISTED, UnsupportedSettings
from generator.commands.console import NO_ONE, PATH
from generator.disk.project import Project
from generator.errors import LoomError, nearest, short
from generator.recipe.library import Library, is_package_name
from generator.recipe.recipe import find_inherited, lineage_of


@click.command("new", **NO_ONE)
@click.option("--from-hf", "config", metavar="FILE", required=True, type=PATH, help="config.json")
@click.option("--target", metavar="T", required=True, help="The target of its package; see gen list.")
@click.option("--name", metavar="NAME", required=True, help="The name of the architecture.")
@click.option("--ignore", metavar="SETTING", multiple=True, help="A setting to accept though no fragment covers it.")
@click.option("--as", "family", metavar="ARCH", default="", help="Start from this one, whatever the model_type.")
def command(config: Path, target: str, name: str, ignore: tuple[str, ...], family: str) -> None:
    """Write an architecture file for a checkpoint, from its config.json.

    The family is chosen by model_type, and its structure (tied embeddings, which layers are sparse, ...) by the
    settings; sizes become a preset. Settings that no fragment covers are an error that names all of them; --ignore
    accepts one, and is written to the architecture file.

    If no architecture has the model_type, the error names the nearest one and the differences from it: in settings and,
    if the checkpoint or its model.safetensors.index.json is beside config.json, in tensors. --as ARCH writes the file
    all the same, with these differences as comments to work through.
    """
    project = Project.find()
    family, path, differences = new(project, config, target, name, ignore, family)
    task = f"work through the {differences} differences that it lists, then " if differences else ""
    click.echo(f"{project.display_path(path)}: as {family}; next: {task}gen build {name} --target={target}")


def new(
    project: Project, config_path: Path, target: str, name: str, ignored: tuple[str, ...] = (), family: str = ""
) -> tuple[str, Path, int]:
    """Writes `templates/architectures/NAME.toml` for the checkpoint that a config.json describes.

    Args:
        target: its package must weave for this one.
        name: of the architecture.
        ignored: settings of config.json to accept though no fragment covers them.
        family: an architecture to start from, whatever the model_type; the file lists the differences as comments.

    Returns:
        The architecture that the new one is based on, the file, and the number of differences to work through.
    """
    config_path = find_config(project, config_path, " --include '*.json'")
    where = project.display_path(config_path)
    hf, library = read_config(config_path, where), project.library()
    if not is_package_name(name) or name != name.lower():
        remedy = "Use small letters, digits and _, and no keyword of Python."
        raise LoomError(f"{name!r} cannot name an architecture", None, remedy)
    path = project.root / "templates/architectures" / f"{name}.toml"
    if name in library.architectures():
        raise LoomError(f"there is an architecture {name!r} already", str(path), "Give another --name.")
    for setting in ignored:
        if setting not in hf:
            raise LoomError(f"has no setting {setting!r}, which --ignore names", where, nearest(setting, hf))
    differences: list[str] = []
    if family:
        tensors = read_tensor_names(config_path.parent, where)
        differences, text = write_draft(library, family, target, hf, tensors, name, where, ignored)
    elif families := find_families(library, hf, where):
        family, text = _fit_one(library, families, target, hf, name, where, ignored)
    else:
        kind, others = describe_other_kind(hf)
        if kind:
            pages = "docs/add-a-family.md and docs/recurrent-layers.md"
            remedy = f"Use another checkpoint, or write fragments for its layers: {pages}."
            raise LoomError(f"is {kind}; Loomax has only {others}", where, remedy)
        raise _explain_unknown_type(library, target, hf, read_tensor_names(config_path.parent, where), name, where)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:  # never through a link to somewhere else
        file.write(text)
    project.forget_library()
    return family, path, len(differences)


def find_config(project: Project, path: Path, what: str = "") -> Path:
    """Returns the config.json that a path names, or that is in the folder that it names.

    Args:
        what: options of `hf download` for what is needed of a repository.
    """
    if path.is_dir():
        path /= "config.json"
    if not path.parent.exists() and re.fullmatch(r"[\w-]+/[\w.-]+", given := path.as_posix()):
        folder = given.partition("/")[2]
        download = f"hf download {given}{what} --local-dir {folder}"
        remedy = f"If it is a repository of Hugging Face, download it first:\n    {download}\n  and give {folder}."
        raise LoomError("does not exist", given, remedy)
    if not path.exists():
        remedy = "Give the config.json of a checkpoint, or the folder that holds it."
        raise LoomError("does not exist", project.display_path(path), remedy)
    return path


def _fit_one(library: Library, families: list[str], *arguments: Any) -> tuple[str, str]:
    """Returns the first family that fits, and the text of the file; raises the error with the fewest problems."""
    refusals: list[LoomError] = []
    for family in families:
        try:
            return family, fit(library, family, *arguments)
        except LoomError as error:
            refusals.append(error)

    def problems(error: LoomError) -> float:
        if isinstance(error, KindError):  # of another pattern of layers, whatever else would fit
            return math.inf
        return len(error.settings) if isinstance(error, UnsupportedSettings) else 0

    raise min(refusals, key=problems)


def find_families(library: Library, hf: dict[str, Any], where: str) -> list[str]:
    """Returns the architectures of the model_type of a config.json, those with the fewest bases first."""
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    types = {name: find_inherited(lineage, "model_type") for name, lineage in lineages.items()}
    families = [name for name, model_type in types.items() if model_type == hf["model_type"]]
    inner = hf["text_config"].get("model_type") if isinstance(hf.get("text_config"), dict) else None
    if not families and inner in types.values():
        message = f"is for a model of text and more; its text_config has the model_type {inner!r}"
        raise LoomError(message, where, "Save the language model alone, with text_config as its config.json.")
    return sorted(families, key=lambda name: len(lineages[name]))


def _explain_unknown_type(
    library: Library, target: str, hf: dict[str, Any], tensors: set[str], name: str, where: str
) -> LoomError:
    """Returns the error for a model_type that no architecture has, with the nearest family and the differences."""
    family, is_near = find_nearest_family(library, target, hf, tensors)
    try:
        differences = write_draft(library, family, target, hf, tensors, name, where).differences
    except LoomError as error:
        differences = [f"it cannot be read as {family}: {error.message}"]
    if not differences:
        differences = ["nothing by name; only its code shows how it uses its tensors"]
    listed = "\n".join(f"- {difference}" for difference in differences[:MAX_LISTED])
    more = f"\n- and {len(differences) - MAX_LISTED} more" if len(differences) > MAX_LISTED else ""
    nearest_one = f"the nearest is {family}" if is_near else f"none is near; {family} is the least far"
    remedy = (
        f"By names, {nearest_one}. Differences:\n{listed}{more}\n"
        f"gen new --as {family} writes an architecture file that lists these as comments to work through."
    ).replace("\n", "\n  ")
    return LoomError(f"no architecture has the model_type {short(repr(hf['model_type']))}", where, remedy)
