"""What of a config.json a woven package cannot read, and nothing covers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from generator.checkpoint.kinds import NoKind, holds
from generator.checkpoint.probe import Readers
from generator.code.memory import remembered
from generator.errors import LoomError, short
from generator.recipe.recipe import Recipe
from generator.recipe.rules import Neutral

MOST = 50  # that one error names


_TYPES = {"int": "int, from 0 to 2,147,483,647", "float": "float, below 1e30"}


@dataclass(frozen=True)
class Problem:
    """A setting for which a package was not woven, and what to do where no rule covers it."""

    setting: str
    message: str
    remedy: str


class Unfit(LoomError):
    """What of a config.json a family cannot read: so many settings."""

    def __init__(self, message: str, shown: str, count: int):
        super().__init__(message, shown)
        self.count = count


def unread(package: Readers, hf: dict[str, Any], recipe: Recipe, family: str, shown: str) -> list[Problem]:
    """The settings that a package cannot read: other structures, then sizes that are not there."""
    problems = []
    for setting, woven, choice in package.structure(hf, shown):
        if hf.get(setting) != woven:
            message = f"{setting} is {_json(hf.get(setting))}, and {family} is woven for {_json(woven)}"
            problems.append(Problem(setting, message, _other_choice(setting, choice.rstrip(","), recipe)))
    for setting, size in package.sizes():
        if hf.get(setting) is None:
            message = f"{setting} is null or left out, and {family} reads {size} from it"
            problems.append(Problem(setting, message, "No rule covers it. Give it a value."))
    return problems


def _other_choice(setting: str, choice: str, recipe: Recipe) -> str:
    """What to do about a setting for whose value no rule selects anything.

    Args:
        choice: what a package would need, as the fragment says that speaks of the setting.
    """
    if "/" in choice or choice.startswith(("the setting ", "layers ")):
        return f"No rule covers it. Select {choice}."
    splices = [splice for fragment in recipe.fragments for splice in fragment.splices]
    texts = "".join(splice.body.text for splice in splices)
    speaking = [  # those last that replace what others say
        splice.fragment
        for splice in sorted(splices, key=lambda splice: splice.point != "hf.structure")
        if splice.origin.path.startswith("fragments/model/")
        and f'yield "{setting}", ' in splice.body.text
        and (splice.point == "hf.structure" or f'point("{splice.point}"' in texts)
    ]
    instead = f", in place of {speaking[-1]}" if speaking else ""
    return f"No built-in fragment does that. Write {choice}{instead}, or use a checkpoint without it."


def _readers(setting: str, recipe: Recipe) -> list[str]:
    """The fragments of any family that read a setting, those of the model first."""
    files, quoted = recipe.library.files, json.dumps(setting)
    found = [path for path in files if path.startswith(("fragments/model/", "fragments/huggingface/"))]
    found = [path[len("fragments/") : -len(".py")] for path in found if quoted in _read_in(files[path])]
    return sorted(found, key=lambda name: not name.startswith("model/"))


@remembered
def _read_in(fragment: str) -> frozenset[str]:
    """The settings that the text of a fragment reads, in quotes."""
    return frozenset(re.findall(r'(?:yield |hf\[|hf\.\w+\()("(?:[^"\\\n]|\\.)*")', fragment))


def wrong_values(package: Readers, hf: dict[str, Any], recipe: Recipe) -> list[Problem]:
    """The sizes that are not of their field's type, or that no model has."""
    kinds = {member.name: member.kind for fragment in recipe.fragments for member in fragment.fields}
    wanted = {
        setting: f"{size} is of type {_TYPES.get(kinds[size], kinds[size])}"
        for setting, size in package.sizes()
        if size in kinds
    }
    filled = {setting for rule in recipe.rules for setting in rule.fills.values()}
    found = {setting: hf[setting] for setting in (*wanted, *filled) if hf.get(setting) is not None}
    wrong = [name for name, size in package.sizes() if name in found and not _is_of(kinds.get(size, ""), found[name])]
    wrong += [name for name in filled & found.keys() if not isinstance(found[name], (str, int, list))]
    return [
        Problem(name, f"{name} is {_json(found[name])}, and {wanted.get(name, 'no number')}", "Fix it.")
        for name in wrong
    ]


def _is_of(kind: str, value: object) -> bool:
    """Whether a field of this type takes a value; types but of one number or text take any."""
    if kind == "int":
        return type(value) is int and 0 <= value < 2**31
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30
    return kind != "str" or isinstance(value, str)


def not_covered(
    package: Readers, recipe: Recipe, hf: dict[str, Any], full: dict[str, Any], family: str, shown: str
) -> list[Problem]:
    """The settings that are on, and that no fragment reads or was chosen for, and that change something."""
    known = {setting for setting, _ in package.sizes()} | {setting for setting, *_ in package.structure(full, shown)}
    known |= package.mentioned
    neutral = {name for table in recipe.neutral if _holds(table, full, shown) for name in table.names}
    types = hf.get("layer_types")
    if isinstance(types, list) and types == ["full_attention"] * len(types):
        known.add("layer_types")  # as without it
    others = {setting: value for setting, value in hf.items() if setting not in neutral | {*ignored_by(recipe)}}
    stated = {name for table in recipe.neutral for name in table.names}
    problems = []
    for setting, value in unknown(others, known | neutral, stated):
        of, remedy = "no fragment covers", "Write a fragment for it, or use a checkpoint without it."
        if readers := ", ".join(_readers(setting, recipe)[:4]):
            of = f"no fragment of {family} reads"
            remedy = f"Other families have {readers} for it: select what it takes in an architecture of your own."
        message = f"{of} the setting {_json(setting)[1:-1]}, which is {_json(value)}"
        problems.append(Problem(setting, message, remedy))
    return problems


def _holds(table: Neutral, hf: dict[str, Any], shown: str) -> bool:
    """Whether settings change nothing; not where that cannot be said of this config.json."""
    try:
        return holds(table.where, {"hf": hf}, table.origin, shown)
    except NoKind:
        return False


def needs(package: Readers, name: str, hf: dict[str, Any], recipe: Recipe, shown: str) -> bool:
    """Whether a package cannot do without a setting that config.json has."""

    def lacking(hf: dict[str, Any]) -> set[str]:
        try:
            return {it.setting for it in unread(package, package.complete(hf, shown), recipe, "", shown)}
        except LoomError as error:
            return {getattr(error, "setting", "")}

    left = lacking({setting: value for setting, value in hf.items() if setting != name})
    return name in left or not left <= lacking(hf)


def all_of(problems: list[Problem], package: Readers, hf: dict[str, Any], recipe: Recipe, shown: str) -> LoomError:
    """One error that names all problems, each with its remedy and how to accept it where that can be."""
    texts = []
    for problem in problems[:MOST]:
        name = problem.setting.partition(".")[0]
        can = name in hf and name != "model_type" and not needs(package, name, hf, recipe, shown)
        accept = f" Or accept what it would change: --ignore {name}" if can else ""
        texts.append(f"{problem.message}\n  {problem.remedy}{accept}")
    if len(problems) > MOST:
        texts.append(f"and {len(problems) - MOST} settings more")
    return Unfit(f"\n{shown}: ".join(texts), shown, len(problems))


def unknown(settings: dict[str, Any], known: set[str], stated: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """The settings that are on and not known, those in tables too: `rope_scaling.factor` is known as such.

    Args:
        stated: settings of which is said what changes nothing: of these, false and 0 may.
    """
    inside = known | {name.rpartition(".")[2] for name in known}
    for setting, value in sorted(settings.items()):
        off = value in (False, 0, [], {}, "") and setting not in stated
        if value is None or off or setting.startswith("_"):
            continue
        if setting not in known:
            yield setting, value
        elif isinstance(value, dict):
            yield from ((f"{setting}.{name}", it) for name, it in unknown(value, inside))


def _json(value: object) -> str:
    return short(json.dumps(value))


def ignored_by(recipe: Recipe) -> list[str]:
    """The settings of config.json that the architecture accepts though nothing covers them."""
    found = recipe.settings.get("ignored", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        where = recipe.architecture_file.path
        raise LoomError(
            "the setting `ignored` is not a list of strings", where, "Give a list of strings under [settings]."
        )
    return found
