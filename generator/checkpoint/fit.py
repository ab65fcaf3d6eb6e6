"""The text of an architecture file whose package fits a checkpoint, from its config.json and a family's rules.

What differs in structure between checkpoints of one family (tied or not, which layers are sparse) is chosen here: the
family's package is woven, asked what it cannot read, and woven again with what the rules select instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from generator.checkpoint.kinds import holds, is_filled, kinds_by_where, layers_that_fill, other_pattern, pattern_tables
from generator.checkpoint.probe import Readers
from generator.errors import LoomError, short
from generator.recipe.library import Library
from generator.recipe.pattern import Pattern, find_groups, make_pattern
from generator.recipe.recipe import Recipe, select
from generator.recipe.rules import Rule
from generator.recipe.toml import toml_text
from generator.weaver import weave

MOST_PROBLEMS = 50  # that one error names


@dataclass
class Choice:
    """What an architecture file for a checkpoint says, beside its sizes.

    Attributes:
        base: the family.
        left_out, added: fragments.
        states: what config.json says, and must say.
        presets: preset -> field -> value.
        pattern: of the layers, where it is not the family's own.
        incomplete: presets of the family that lack a field which was added.
        followed: the rules that chose all this.
    """

    base: Recipe
    left_out: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    states: dict[str, object] = field(default_factory=dict)
    presets: dict[str, dict[str, object]] = field(default_factory=dict)
    pattern: Pattern | None = None
    incomplete: list[str] = field(default_factory=list)
    followed: list[Rule] = field(default_factory=list)

    def follow(self, rule: Rule, recipe: Recipe, hf: dict[str, Any]) -> bool:
        """Selects what a rule says; whether that changes anything."""
        selected = {fragment.name for fragment in recipe.fragments}
        stay = selected - recipe.pattern.of_kinds if rule.kinds else selected
        spare = {name for kind in recipe.pattern.spare.values() for name in kind.fragments}
        without = [name for name in rule.without if name in selected | spare]
        fragments = [name for name in rule.fragments if name not in stay]
        settings = {name: it for name, it in rule.settings_for(hf).items() if recipe.settings.get(name) != it}
        if not (without or fragments or settings or rule.states or rule.kinds):
            return False
        if rule.kinds:  # what an earlier rule left out stays out of them
            groups = rule.groups or find_groups(kinds_by_where(rule.kinds, hf))
            kinds = {name: kind.without(self.left_out) for name, kind in rule.kinds.items()}
            self.pattern = make_pattern(groups, kinds)
        elif self.pattern:
            kinds = {name: kind.without(without) for name, kind in self.pattern.every.items()}
            self.pattern = make_pattern(self.pattern.groups, kinds)
        self.left_out = [name for name in self.left_out if name not in fragments] + without
        self.added = [name for name in self.added if name not in without] + fragments
        self.settings |= settings
        self.states |= rule.states
        for preset, fields in rule.presets.items():
            self.presets.setdefault(preset, {}).update(fields)
        self.followed.append(rule)
        return True

    def tables(self, title: str) -> dict[str, Any]:
        """The tables of the architecture file, without the sizes of the checkpoint."""
        pattern = pattern_tables(self.pattern) if self.pattern else {}
        tables = dict(self._names()) | {"settings": self.settings} | pattern | {"presets": self.presets}
        tables["hf"] = {"settings": self.states} if self.states else {}
        said = {key: value for key, value in tables.items() if value}
        return {"base": self.base.architecture, "title": title, **said}

    def _names(self) -> Iterator[tuple[str, list[str]]]:
        """The lists of names; what a kind selects is left out of what all layers have."""
        selected = [fragment.name for fragment in self.base.fragments]
        out, added = set(self.left_out), list(self.added)
        if self.pattern:
            selected = [name for name in selected if name not in self.base.pattern.of_kinds]
            out |= self.pattern.of_kinds
            added = [name for name in added if name not in self.pattern.of_kinds]
        yield "without", [name for name in selected if name in out]
        yield "without_presets", self.incomplete
        yield "fragments", added


def fit(
    library: Library, family: str, target: str, hf: dict[str, Any], name: str, shown: str, ignored: Iterable[str] = ()
) -> str:
    """The text of an architecture file on top of a family's, whose package fits a config.json.

    Args:
        shown: the path of config.json, for errors.
        ignored: settings that are accepted though nothing covers them; the architecture file and the package say so.

    Raises:
        LoomError: settings that no rule of the family and no fragment covers, all of them.
    """
    choice, path = Choice(select(family, target, library)), f"templates/architectures/{name}.toml"
    if ignored:
        choice.settings["ignored"] = sorted({*_ignored(choice.base), *ignored})
    for _ in range(30):  # a rule may bring the need of another
        tables, recipe = complete(choice, library, target, name, name)
        package = Readers(weave(name, target, recipe.library).files)
        full = package.complete(hf, shown)
        if wrong := _wrong_values(package, full, recipe):
            raise _all_of(wrong, hf, shown)
        problems = _problems(package, full, family, shown) + _not_covered(package, recipe, hf, full, shown)
        if _follow_a_rule(choice, recipe, full, problems):
            continue
        if pattern := other_pattern(recipe, choice.left_out, package.config(full), full):
            choice.pattern = pattern
            continue
        if problems:
            raise _all_of(problems, hf, shown)
        if reason := package.refusal(full):
            listed = reason.replace("\n", "\n  ")
            raise LoomError(f"a package for it would refuse its sizes:\n  {listed}", shown, "Mend them.")
        found = {field: full[setting] for setting, field in package.sizes()}
        sizes = {field: [*value] if isinstance(value, tuple) else value for field, value in found.items()}
        return toml_text(tables | {"presets": tables.get("presets", {}) | {name: sizes}}, path)
    raise LoomError("the rules of this family contradict each other", f"templates/architectures/{family}.toml", "Mend.")


def complete(choice: Choice, library: Library, target: str, name: str, title: str) -> tuple[dict[str, Any], Recipe]:
    """The tables of an architecture file for what was chosen so far, and what they select.

    Presets of the family that lack a field which was added are left out.
    """
    choice.incomplete = []
    recipe = _select(choice.tables(title), library, target, name)
    required = [member.name for fragment in recipe.fragments for member in fragment.fields if member.is_required]
    for preset, given in recipe.presets.items():
        missing = [member for member in required if member not in given]
        sizes = {member: value for member, (value, _) in given.items()}
        if preset == "tiny" and choice.followed and missing:
            message = f"the preset 'tiny' leaves out {', '.join(missing)}, which a fragment of this rule adds"
            remedy = "Give it in [structure.presets.tiny] of the rule."
            raise LoomError(message, str(choice.followed[-1].origin), remedy)
        if not missing and (choice.pattern is None or is_filled(choice.pattern, sizes)):
            continue
        if preset == "tiny" and choice.pattern and (layers := layers_that_fill(choice.pattern, sizes)):
            choice.presets.setdefault("tiny", {})["layers"] = layers
        else:
            choice.incomplete.append(preset)
    tables = choice.tables(title)
    return tables, _select(tables, library, target, name)


def _select(tables: dict[str, Any], library: Library, target: str, name: str) -> Recipe:
    path = f"templates/architectures/{name}.toml"
    return select(name, target, Library({**library.files, path: toml_text(tables, path)}))


@dataclass(frozen=True)
class Problem:
    """A setting for which a package was not woven, and what to do where no rule covers it."""

    setting: str
    message: str
    remedy: str


def _problems(package: Readers, hf: dict[str, Any], family: str, shown: str) -> list[Problem]:
    """The settings that a package cannot read: other structures, then sizes that are not there."""
    problems = []
    for setting, woven, choice in package.structure(hf, shown):
        if hf.get(setting) != woven:
            message = f"{setting} is {_json(hf.get(setting))}, and {family} is woven for {_json(woven)}"
            problems.append(Problem(setting, message, f"No rule covers it. Select {choice.rstrip(',')}."))
    for setting, size in package.sizes():
        if hf.get(setting) is None:
            message = f"{setting} is null or left out, and {family} reads {size} from it"
            problems.append(Problem(setting, message, "No rule covers it. Give it a value."))
    return problems


def _wrong_values(package: Readers, hf: dict[str, Any], recipe: Recipe) -> list[Problem]:
    """The sizes that are not of their field's type, or that no model has."""
    kinds = {member.name: member.kind for fragment in recipe.fragments for member in fragment.fields}
    wanted = {setting: f"{size} is of type {kinds[size]}" for setting, size in package.sizes() if size in kinds}
    filled = {setting for rule in recipe.rules for setting in rule.fills.values()}
    found = {setting: hf[setting] for setting in (*wanted, *filled) if hf.get(setting) is not None}
    wrong = [name for name, size in package.sizes() if name in found and not _is_of(kinds.get(size, ""), found[name])]
    wrong += [name for name in filled & found.keys() if not isinstance(found[name], (str, int, list))]
    return [
        Problem(name, f"{name} is {_json(found[name])}, and {wanted.get(name, 'no number')}", "Mend it.")
        for name in wrong
    ]


def _is_of(kind: str, value: object) -> bool:
    """Whether a field of this type takes a value; types but of one number or text take any."""
    if kind == "int":
        return type(value) is int and 0 <= value < 2**31
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30
    return kind != "str" or isinstance(value, str)


def _follow_a_rule(choice: Choice, recipe: Recipe, hf: dict[str, Any], problems: list[Problem]) -> bool:
    """Follows the nearest rule for the first setting that has one, each rule once; whether there is one."""
    return any(
        rule not in choice.followed and rule.covers(problem.setting, hf) and choice.follow(rule, recipe, hf)
        for problem in problems
        for rule in recipe.rules
    )


def _not_covered(
    package: Readers, recipe: Recipe, hf: dict[str, Any], full: dict[str, Any], shown: str
) -> list[Problem]:
    """The settings that are on, and that no fragment reads or was chosen for, and that change something."""
    known = {setting for setting, _ in package.sizes()} | {setting for setting, *_ in package.structure(full, shown)}
    known |= package.mentioned | {*_ignored(recipe)}
    neutral = {
        name for table in recipe.neutral if holds(table.where, {"hf": full}, table.origin) for name in table.names
    }
    if isinstance(types := hf.get("layer_types"), list) and all(kind == "full_attention" for kind in types):
        known.add("layer_types")  # as without it
    others = {setting: value for setting, value in hf.items() if setting not in neutral}
    remedy = "Write a fragment for it, or take a checkpoint without it."
    return [
        Problem(setting, f"no fragment covers the setting {setting}, which is {_json(value)}", remedy)
        for setting, value in _unknown(others, known | neutral)
    ]


def _all_of(problems: list[Problem], hf: dict[str, Any], shown: str) -> LoomError:
    """One error that names all problems, each with its remedy and how to accept it."""
    remedies = []
    for problem in problems:
        name = problem.setting.partition(".")[0]
        accept = f" Or accept what it would change: --ignore {name}" if name in hf and name != "model_type" else ""
        remedies.append(problem.remedy + accept)
    texts = [f"{problem.message}\n  {remedy}" for problem, remedy in zip(problems, remedies, strict=True)]
    if len(texts) > MOST_PROBLEMS:
        texts[MOST_PROBLEMS:] = [f"and {len(texts) - MOST_PROBLEMS} settings more"]
    return LoomError(f"\n{shown}: ".join(texts), shown)


def _unknown(settings: dict[str, Any], known: set[str]) -> Iterator[tuple[str, Any]]:
    """The settings that are on and not known, those in tables too: `rope_scaling.factor` is known as such."""
    inside = known | {name.rpartition(".")[2] for name in known}
    for setting, value in sorted(settings.items()):
        if value in (None, False, 0, 0.0, [], {}, "") or setting.startswith("_"):
            continue
        if setting not in known:
            yield setting, value
        elif isinstance(value, dict):
            yield from ((f"{setting}.{name}", it) for name, it in _unknown(value, inside))


def _json(value: object) -> str:
    return short(json.dumps(value))


def _ignored(recipe: Recipe) -> list[str]:
    """The settings of config.json that the architecture accepts though nothing covers them."""
    found = recipe.settings.get("ignored", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        where = recipe.architecture_file.path
        raise LoomError("the setting `ignored` is no list of strings", where, "Give it as one under [settings].")
    return found
