"""An architecture file for a checkpoint that no family covers: what differs from one stands in it as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from generator.checkpoint.fit import Fitted, settle
from generator.checkpoint.kinds import NoKind
from generator.checkpoint.probe import MissingSetting
from generator.errors import LoomError, printable
from generator.recipe.library import Library
from generator.recipe.recipe import select

INDEX = "model.safetensors.index.json"
LARGEST = 10**8  # bytes of a header, by the format of safetensors


def tensors_beside(folder: Path, shown: str) -> set[str]:
    """The names of the tensors in a checkpoint's folder, with {} for numbers; none where it has none of their files."""
    names: set[str] = set()
    index = folder / INDEX
    for path in [index] if index.is_file() else sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                if path == index:
                    names |= json.load(file)["weight_map"].keys()
                else:
                    size = min(int.from_bytes(file.read(8), "little"), LARGEST)
                    names |= json.loads(file.read(size)).keys() - {"__metadata__"}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            remedy = "Fetch it again, or remove it: then only settings are compared."
            raise LoomError(f"{path.name} beside it cannot be read", shown, remedy) from None
    return {re.sub(r"\.\d+(?=\.|$)", ".{}", name) for name in names}


class Draft(NamedTuple):
    """A family beside a checkpoint that it was not made for.

    Attributes:
        differences: each a line or a few, with what to do.
        text: of the architecture file, which has them as comments, above what the family covers already.
    """

    differences: list[str]
    text: str


def draft(
    library: Library,
    family: str,
    target: str,
    hf: dict[str, Any],
    tensors: set[str],
    name: str,
    shown: str,
    ignored: Iterable[str] = (),
) -> Draft:
    """What differs between a checkpoint and a family, and a file to start from.

    Args:
        tensors: names, with {} for numbers; empty where they are not known.
        name: of the architecture.
        shown: the path of config.json, for errors.
    """
    lacking: dict[str, int] = {}  # what the family takes for granted; any number will do to go on
    unlike: dict[str, str] = {}  # setting by which it tells its layers apart -> why that says nothing here
    while True:
        known = {setting: value for setting, value in hf.items() if setting not in unlike}
        try:
            fitted = settle(library, family, target, known | lacking, name, shown, ignored)
            break
        except MissingSetting as error:
            if error.setting in lacking:
                raise
            lacking[error.setting] = 1
        except NoKind as error:
            if not (said := {*error.settings} & known.keys()):
                raise
            unlike |= dict.fromkeys(sorted(said), error.message)
    passed_over = {"model_type", *lacking}
    differences = [
        *(f"the setting {setting} is left out, and {family} needs it" for setting in lacking),
        *dict.fromkeys(unlike.values()),
        *(f"{it.message}\n{it.remedy}" for it in fitted.problems if it.setting not in passed_over),
        *_other_tensors(fitted, tensors),
    ]
    recipe = select(family, target, library)
    others = [preset for preset in recipe.presets if preset != "tiny"]
    theirs = {name for file in recipe.lineage for name in file.data.fragments}  # and not every package's
    tests = [it.name for it in recipe.fragments if it.name.startswith("tests/") and it.name in theirs]
    without = [*fitted.tables.get("without", ()), *tests]
    own = {"model_type": hf["model_type"], "without": without, "without_presets": others}
    match hf.get("architectures"):
        case [str(reference), *_]:
            own["reference"] = reference
    unknown = {field for setting, field in fitted.package.sizes() if setting in lacking}
    sizes = {field: value for field, value in fitted.sizes().items() if field not in unknown}
    own = {key: value for key, value in own.items() if value}
    text = replace(fitted, tables=fitted.tables | own).text(name, sizes)
    return Draft(differences, _comments(family, differences) + text)


def _comments(family: str, differences: list[str]) -> str:
    lines = [f"Based on {family}. Work through what differs from it; gen parity says when all is well.", ""]
    for difference in differences:
        first, *more = difference.splitlines()
        lines += [f"- {first}", *(f"  {line}" for line in more)]
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in [*lines, ""])


def _other_tensors(fitted: Fitted, tensors: set[str]) -> list[str]:
    if not tensors:
        return [f"tensors were not compared: there is neither {INDEX} nor a safetensors file beside config.json"]
    ours = fitted.package.tensors()
    spare = sorted(name for name in tensors - ours if not name.endswith(fitted.package.buffers()))
    found = [f"no fragment has a place for the tensor {name}" for name in spare]
    return found + [f"the checkpoint has no tensor {name}, which the package has" for name in sorted(ours - tensors)]
