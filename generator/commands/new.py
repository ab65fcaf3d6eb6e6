"""Writes an architecture file for a checkpoint, from its config.json: `gen new`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generator.checkpoint.config_json import read_config
from generator.checkpoint.fit import fit
from generator.disk.project import Project
from generator.errors import LoomError, nearest, short
from generator.recipe.library import Library, is_package_name
from generator.recipe.recipe import lineage_of, said


def new(project: Project, config_path: Path, target: str, name: str, ignored: tuple[str, ...] = ()) -> tuple[str, Path]:
    """Writes `templates/architectures/NAME.toml` for the checkpoint that a config.json describes.

    Args:
        target: what its package must weave for.
        name: of the architecture.
        ignored: settings of config.json that are accepted though no fragment covers them.

    Returns:
        The architecture that it is based on, and the file.

    Raises:
        LoomError: a config.json that cannot be read, or settings that no fragment covers.
    """
    shown = project.show(config_path)
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
    families = _families(library, target, hf, shown)
    refusals = []
    for family in families:
        try:
            text = fit(library, family, target, hf, name, shown, ignored)
        except LoomError as error:
            refusals.append(error)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # never through a link to somewhere else
            file.write(text)
        project.forget_library()
        return family, path
    raise refusals[0]


def _families(library: Library, target: str, hf: dict[str, Any], shown: str) -> list[str]:
    """The architectures of this model_type, those without a base first."""
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    types = {name: said(lineage, "model_type") for name, lineage in lineages.items()}
    found = [name for name, kind in types.items() if kind == hf["model_type"]]
    if not found:
        inner = hf["text_config"].get("model_type") if isinstance(hf.get("text_config"), dict) else None
        if inner in types.values():  # of a model of images and text
            remedy = (
                f"Its text_config is of {inner!r}: save the language model by itself, with that as its config.json."
            )
        else:
            remedy = nearest(hf["model_type"], sorted({kind for kind in types.values() if kind}))
        raise LoomError(f"no architecture is of the model_type {short(repr(hf['model_type']))}", shown, remedy)
    return sorted(found, key=lambda name: len(lineages[name]))
