"""Writes an architecture file for a checkpoint, from its config.json: `gen new`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from generator.checkpoint.draft import draft, nearest_family
from generator.checkpoint.files import read_config, tensors_beside
from generator.checkpoint.fit import fit
from generator.checkpoint.problems import MOST, Unfit
from generator.commands.console import NO_ONE, PATH
from generator.disk.project import Project
from generator.errors import LoomError, nearest, short
from generator.recipe.library import Library, is_package_name
from generator.recipe.recipe import lineage_of, said


@click.command("new", **NO_ONE)
@click.option("--from-hf", "config", metavar="FILE", required=True, type=PATH, help="config.json")
@click.option("--target", metavar="T", required=True, help="What the package is to run on; see gen list.")
@click.option("--name", metavar="NAME", required=True, help="Of the architecture.")
@click.option("--ignore", metavar="SETTING", multiple=True, help="Of config.json: accept what no fragment covers.")
@click.option("--as", "family", metavar="ARCH", default="", help="Start from this one, whatever the model_type.")
def command(config: Path, target: str, name: str, ignore: tuple[str, ...], family: str) -> None:
    """Write an architecture file for a checkpoint, from its config.json.

    The family is chosen by model_type, and its structure (tied embeddings, which layers are sparse, ...) by the
    settings; sizes become a preset. Settings that no fragment covers are an error that names all of them; --ignore
    accepts one, and is written to the architecture file.

    Where no architecture has the model_type, the nearest is named, with what differs from it: in settings and, where
    the checkpoint or its model.safetensors.index.json is beside config.json, in tensors. --as ARCH writes the file all
    the same, with these differences as comments to work through.
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
        target: what its package must weave for.
        name: of the architecture.
        ignored: settings of config.json that are accepted though no fragment covers them.
        family: an architecture to start from, whatever the model_type; what differs from it is written as comments.

    Returns:
        The architecture that it is based on, the file, and how many differences there are to work through.
    """
    if config_path.is_dir():
        config_path /= "config.json"
    shown = project.display_path(config_path)
    hf, library = read_config(config_path, shown), project.library()
    if not is_package_name(name) or name != name.lower():
        remedy = "Use small letters, digits and _, and no word of Python."
        raise LoomError(f"{name!r} cannot name an architecture", None, remedy)
    path = project.root / "templates/architectures" / f"{name}.toml"
    if name in library.architectures():
        raise LoomError(f"there is an architecture {name!r} already", str(path), "Give another --name.")
    for setting in ignored:
        if setting not in hf:
            raise LoomError(f"has no setting {setting!r}, which --ignore names", shown, nearest(setting, hf))
    differences: list[str] = []
    if family:
        tensors = tensors_beside(config_path.parent, shown)
        differences, text = draft(library, family, target, hf, tensors, name, shown, ignored)
    elif families := _families(library, hf, shown):
        family, text = _fit_one(library, families, target, hf, name, shown, ignored)
    elif kind := _other_kind(hf):
        message = f"is of {kind}, of which Loomax has none yet: its models predict the next token of a text"
        raise LoomError(message, shown, "Use a checkpoint whose class in transformers ends in ForCausalLM.")
    else:
        raise _unknown_type(library, target, hf, tensors_beside(config_path.parent, shown), name, shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:  # never through a link to somewhere else
        file.write(text)
    project.forget_library()
    return family, path, len(differences)


def _fit_one(library: Library, families: list[str], *arguments: Any) -> tuple[str, str]:
    """Returns the first family that fits, and the text of the file; raises why the nearest does not."""
    refusals: list[LoomError] = []
    for family in families:
        try:
            return family, fit(library, family, *arguments)
        except LoomError as error:
            refusals.append(error)
    raise min(refusals, key=lambda error: error.count if isinstance(error, Unfit) else 0)


def _other_kind(hf: dict[str, Any]) -> str:
    """Returns what kind of model a config.json is of, unless it is one that predicts the next token."""
    said = hf.get("architectures")
    classes = [name for name in said if isinstance(name, str)] if isinstance(said, list) else []
    causal = any(name.endswith(("CausalLM", "LMHeadModel")) for name in classes)
    named = short(repr(hf["model_type"])) + (f" ({short(classes[0])})" if classes else "")
    if hf.get("is_encoder_decoder"):
        return f"an encoder-decoder model, {named}"
    if inputs := [name for name in ("text", "vision", "audio") if isinstance(hf.get(f"{name}_config"), dict)]:
        return f"a model of several parts ({', '.join(inputs)}), {named}"
    if classes and not causal:
        return f"an encoder, or another model that continues no text, {named}"
    return ""


def _families(library: Library, hf: dict[str, Any], shown: str) -> list[str]:
    """Returns the architectures of this model_type, those without a base first."""
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    types = {name: said(lineage, "model_type") for name, lineage in lineages.items()}
    found = [name for name, kind in types.items() if kind == hf["model_type"]]
    inner = hf["text_config"].get("model_type") if isinstance(hf.get("text_config"), dict) else None
    if not found and inner in types.values():
        message = f"is of a model of text and more, whose text_config is of the model_type {inner!r}"
        raise LoomError(message, shown, "Save the language model by itself, with that as its config.json.")
    return sorted(found, key=lambda name: len(lineages[name]))


def _unknown_type(
    library: Library, target: str, hf: dict[str, Any], tensors: set[str], name: str, shown: str
) -> LoomError:
    """Returns the error for a model_type that no architecture has: it names the nearest, and what differs from it."""
    family = nearest_family(library, target, hf, tensors)
    try:
        differences = draft(library, family, target, hf, tensors, name, shown).differences
    except LoomError as error:  # what the family asks of config.json means nothing there
        differences = [f"it cannot be read as {family}: {error.message}"]
    if not differences:
        differences = ["nothing by name; what it does with its tensors, only its code says"]
    listed = "\n".join(f"- {difference}" for difference in differences[:MOST])
    more = f"\n- and {len(differences) - MOST} more" if len(differences) > MOST else ""
    remedy = (
        f"Going by names, the nearest is {family}. What differs from it:\n{listed}{more}\n"
        f"Add --as {family} to write an architecture file that lists these as comments to work through."
    ).replace("\n", "\n  ")
    return LoomError(f"no architecture is of the model_type {short(repr(hf['model_type']))}", shown, remedy)
