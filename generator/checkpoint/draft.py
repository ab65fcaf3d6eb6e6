"""An architecture file for a checkpoint that no family covers: what differs from one stands in it as comments."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from generator.checkpoint.files import INDEX
from generator.checkpoint.fit import FittedFamily, settle
from generator.checkpoint.layers import NoKind
from generator.checkpoint.problems import unknown
from generator.checkpoint.readers import MissingSetting, Readers
from generator.errors import LoomError, printable
from generator.recipe.library import Library
from generator.recipe.recipe import lineage_of, said, select


def nearest_family(library: Library, target: str, hf: dict[str, Any], tensors: set[str]) -> str:
    """Returns the family that a checkpoint differs least from: in settings and, where they are known, in tensors.

    Of several the one that builds on the fewest others, and then the one whose model_type is spelt most alike.

    Args:
        tensors: names, with {} for numbers; empty where they are not known.
    """
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    first: dict[str, str] = {}  # of each model_type
    for name in sorted(lineages, key=lambda name: len(lineages[name])):
        first.setdefault(said(lineages[name], "model_type"), name)

    def distance(model_type: str) -> tuple[float, ...]:
        try:
            recipe = select(first[model_type], target, library)
            package = Readers(recipe)
        except LoomError:  # it does not go with the target
            return (float("inf"),)
        sizes = {setting for setting, _ in package.sizes()}
        known = package.mentioned | sizes | {setting for setting, *_ in package.structure({}, "")}
        known |= {setting for table in recipe.neutral for setting in table.names}
        others = sum(1 for _ in unknown(hf, known))
        missing = sum(1 for setting in sizes - package.mentioned if hf.get(setting) is None)
        apart = len(tensors ^ package.tensors()) if tensors else 0
        alike = difflib.SequenceMatcher(None, model_type, hf["model_type"]).ratio()
        return others + missing + apart, len(recipe.lineage), -alike

    return first[min(first, key=distance)]


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
    """Returns what differs between a checkpoint and a family, and a file to start from.

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
            if not (settings := {*error.settings} & known.keys()):
                raise
            unlike |= dict.fromkeys(sorted(settings), error.message)
    passed_over = {"model_type", *lacking}
    differences = [
        *(f"the setting {setting} is left out, and {family} needs it" for setting in lacking),
        *dict.fromkeys(unlike.values()),
        *(f"{it.message}\n{it.remedy}" for it in fitted.problems if it.setting not in passed_over),
        *_other_tensors(fitted, tensors),
    ]
    recipe = select(family, target, library)
    theirs = {name for file in recipe.lineage for name in file.data.fragments}  # and not every package's
    tests = [it.name for it in recipe.fragments if it.name.startswith("tests/") and it.name in theirs]
    own = {
        "model_type": hf["model_type"],
        "without": [*fitted.tables.get("without", ()), *tests],
        "without_presets": [preset for preset in recipe.presets if preset != "tiny"],
    }
    match hf.get("architectures"):
        case [str(reference), *_]:
            own["reference"] = reference
    tables = fitted.tables | {key: value for key, value in own.items() if value}
    guessed = {field for setting, field in fitted.package.sizes() if setting in lacking}
    sizes = {field: value for field, value in fitted.sizes().items() if field not in guessed}
    return Draft(differences, _comments(family, differences) + replace(fitted, tables=tables).text(name, sizes))


def _comments(family: str, differences: list[str]) -> str:
    lines = [f"Based on {family}. Work through what differs from it; gen parity says when all is well.", ""]
    for difference in differences:
        first, *more = difference.splitlines()
        lines += [f"- {first}", *(f"  {line}" for line in more)]
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in [*lines, ""])


def _other_tensors(fitted: FittedFamily, tensors: set[str]) -> list[str]:
    if not tensors:
        return [f"tensors were not compared: there is neither {INDEX} nor a safetensors file beside config.json"]
    ours = fitted.package.tensors()
    spare = sorted(name for name in tensors - ours if not name.endswith(fitted.package.buffers()))
    found = [f"no fragment has a place for the tensor {name}" for name in spare]
    return found + [f"the checkpoint has no tensor {name}, which the package has" for name in sorted(ours - tensors)]
