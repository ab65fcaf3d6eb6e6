"""Drafts an architecture file for a checkpoint that no family covers: comments list the differences from one."""

from __future__ import annotations

import difflib
import heapq
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from generator.checkpoint.files import INDEX
from generator.checkpoint.fit import FittedFamily, follow_rules
from generator.checkpoint.layers import KindError
from generator.checkpoint.problems import UnsupportedSettings, find_unknown
from generator.checkpoint.readers import ConfigReader, MissingSetting, UnreadableSettings
from generator.errors import LoomError, printable
from generator.recipe.library import Library
from generator.recipe.recipe import find_inherited, lineage_of, select

NEAR = 0.35  # largest share of settings and tensors that differ
LIKELY = 20  # families that are woven, to be compared with a checkpoint in full


def find_nearest_family(library: Library, target: str, hf: dict[str, Any], tensors: set[str]) -> tuple[str, bool]:
    """Returns the family with the fewest differences from a checkpoint, and whether it is near.

    Differences are in settings, and in tensors if they are known. Among equals, it has the fewest bases, and then the
    model_type with the most similar spelling.

    Args:
        tensors: names, with {} for numbers; empty if they are not known.
    """
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    first: dict[str, str] = {}  # model_type -> the family with the fewest bases
    for name in sorted(lineages, key=lambda name: len(lineages[name])):
        first.setdefault(find_inherited(lineages[name], "model_type"), name)

    def distance(model_type: str) -> tuple[float, ...]:
        try:
            recipe = select(first[model_type], target, library)
            package = ConfigReader(recipe)
        except LoomError:  # not for this target
            return (float("inf"),)
        sizes = {setting for setting, _ in package.sizes()}
        known = package.mentioned | sizes | {setting for setting, *_ in package.structure({}, "")}
        known |= {setting for table in recipe.neutral for setting in table.settings}
        unread = sum(1 for _ in find_unknown(hf, known))
        required = sizes - package.mentioned | sizes & package.defaults.keys()
        missing = len(required - hf.keys())
        other_tensors = len(tensors ^ package.tensors()) if tensors else 0
        similarity = difflib.SequenceMatcher(None, model_type, hf["model_type"]).ratio()
        return unread + missing + other_tensors, len(recipe.lineage), -similarity

    def stated_distance(model_type: str) -> int:
        """Returns the differences from what the tables of a family state, which are read without weaving."""
        tables = [file.data.hf for file in lineages[first[model_type]]]
        defaults = {setting for table in tables for setting in table.defaults}
        stated = defaults.union(*(table.settings for table in tables), *(table.names.values() for table in tables))
        rows = [row for table in tables for row in table.tensors.values()]
        named = {row if isinstance(row, str) else row[0] for row in rows}
        return len(hf.keys() - stated) + len(defaults - hf.keys()) - 2 * len(tensors & named)

    likely = heapq.nsmallest(LIKELY, first, key=stated_distance)
    distances = {model_type: distance(model_type) for model_type in likely}
    nearest = min(likely, key=distances.__getitem__)
    count = sum(1 for _ in find_unknown(hf, set())) + len(tensors)
    return first[nearest], distances[nearest][0] <= NEAR * count


class Draft(NamedTuple):
    """An architecture file, based on a family, for a checkpoint of another family.

    Attributes:
        differences: each a message, with a remedy on further lines.
        text: of the file, with the differences as comments at its top.
    """

    differences: list[str]
    text: str


def write_draft(
    library: Library,
    family: str,
    target: str,
    hf: dict[str, Any],
    tensors: set[str],
    name: str,
    where: str,
    ignored: Iterable[str] = (),
) -> Draft:
    """Returns a draft for a checkpoint, based on a family.

    Args:
        tensors: names, with {} for numbers; empty if they are not known.
        name: of the architecture.
        where: the path of config.json, for errors.
        ignored: settings to accept though no fragment reads them.
    """
    missing: dict[str, int] = {}  # setting without a default that is left out -> any number
    unfit: dict[str, str] = {}  # setting that cannot be read, or gives some layer no kind -> the error
    while True:
        known = {setting: value for setting, value in hf.items() if setting not in unfit}
        try:
            fitted = follow_rules(library, family, target, known | missing, name, where, ignored)
            break
        except MissingSetting as error:
            if error.setting in missing:
                raise
            missing[error.setting] = 1
        except (KindError, UnreadableSettings, UnsupportedSettings) as error:
            if not (settings := {*error.settings} & known.keys()):
                raise
            unfit |= dict.fromkeys(sorted(settings), error.message.replace(f"\n{where}: ", "\n"))
    package = fitted.package
    read = {setting for setting, _ in package.sizes()} | {name for name, *_ in package.structure(fitted.full, where)}
    taken = {name: x for name, x in package.defaults.items() if name in read - hf.keys() and x not in (False, {})}
    differences = [
        *(f"the setting {setting} is left out, and {family} needs it" for setting in missing),
        *(
            f"the setting {setting} is left out, and {family} takes {json.dumps(taken[setting])} then"
            for setting in taken
        ),
        *dict.fromkeys(unfit.values()),
        *(f"{p.message}\n{p.remedy}" for p in fitted.problems if p.setting not in {"model_type", *missing}),
        *_list_other_tensors(fitted, tensors),
    ]
    recipe = select(family, target, library)
    theirs = {name for file in recipe.lineage for name in file.data.fragments}  # without those of every package
    tests = [f.name for f in recipe.fragments if f.name.startswith("tests/") and f.name in theirs]
    tables = fitted.choice.tables()
    own = {
        "model_type": hf["model_type"],
        "without": [*tables.get("without", ()), *tests],
        "without_presets": [preset for preset in recipe.presets if preset != "tiny"],
    }
    match hf.get("architectures"):
        case [str(reference), *_]:
            own["reference"] = reference
    tables |= {key: value for key, value in own.items() if value}
    guessed = {field for setting, field in package.sizes() if setting in missing or setting in taken}
    sizes = {field: value for field, value in fitted.sizes().items() if field not in guessed}
    return Draft(differences, _write_comments(family, differences) + fitted.text(tables, sizes))


def _write_comments(family: str, differences: list[str]) -> str:
    lines = [f"Based on {family}. Work through the differences from it until gen parity finds none.", ""]
    for difference in differences:
        first, *more = difference.splitlines()
        lines += [f"- {first}", *(f"  {line}" for line in more)]
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in [*lines, ""])


def _list_other_tensors(fitted: FittedFamily, tensors: set[str]) -> list[str]:
    if not tensors:
        return [f"tensors were not compared: there is neither {INDEX} nor a safetensors file beside config.json"]
    ours = fitted.package.tensors()
    theirs = sorted(name for name in tensors - ours if not name.endswith(fitted.package.buffers()))
    return [
        *(f"no fragment has a place for the tensor {name}" for name in theirs),
        *(f"the checkpoint has no tensor {name}, which the package has" for name in sorted(ours - tensors)),
    ]
