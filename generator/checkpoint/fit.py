"""Fits a family to a checkpoint: writes an architecture file, from a config.json and the rules of the family.

Checkpoints of one family differ in structure (tied embeddings, which layers are sparse). The readers of config.json
are woven and run; the first rule that covers a setting which they cannot read changes the selection; and so on. The
package itself is woven once, at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from generator.checkpoint.layers import (
    count_filling_layers,
    drop_empty,
    find_kinds,
    find_other_pattern,
    is_filled,
    to_tables,
)
from generator.checkpoint.problems import (
    Problem,
    UnsupportedSettings,
    find_uncovered,
    find_unread,
    find_wrong_types,
    read_ignored,
)
from generator.checkpoint.readers import ConfigReader
from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.pattern import Kind, Pattern, find_groups, make_pattern
from generator.recipe.recipe import Recipe, select
from generator.recipe.rules import Rule
from generator.recipe.toml import toml_text
from generator.weaver import weave


@dataclass
class FamilyChoice:
    """The content of an architecture file for a checkpoint, except its sizes.

    Attributes:
        base: the family.
        name: of the new architecture.
        where: the path of config.json, for errors.
        left_out, added: fragments.
        hf: the tables of `[hf]`: table -> key -> value.
        presets: preset -> field -> value.
        pattern: the layers, None for those of the family.
        incomplete: presets of the family that lack a field of an added fragment.
        followed: the rules that selected all this.
    """

    base: Recipe
    name: str
    where: str
    left_out: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    hf: dict[str, dict[str, Any]] = field(default_factory=dict)
    presets: dict[str, dict[str, object]] = field(default_factory=dict)
    pattern: Pattern | None = None
    incomplete: list[str] = field(default_factory=list)
    followed: list[Rule] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"templates/architectures/{self.name}.toml"

    def follow(self, rule: Rule, recipe: Recipe, hf: dict[str, Any]) -> bool:
        """Applies a rule; returns whether that changes anything.

        Args:
            recipe: that of the choice so far.
            hf: a completed config.json.
        """
        selected = {fragment.name for fragment in recipe.fragments}
        kept = selected - recipe.pattern.kind_fragments if rule.kinds else selected
        spare = {name for kind in recipe.pattern.spare.values() for name in kind.fragments}
        without = [name for name in rule.table.without if name in selected | spare]
        fragments = [name for name in rule.table.fragments if name not in kept]
        settings = {name: x for name, x in rule.settings_for(hf).items() if recipe.settings.get(name) != x}
        if not (without or fragments or settings or rule.hf or rule.kinds):
            return False
        if rule.kinds:  # without fragments that an earlier rule left out
            groups = rule.groups or find_groups(find_kinds(rule.kinds, hf, self.where))
            kinds = {name: kind.without(self.left_out) for name, kind in rule.kinds.items()}
            self.set_pattern(make_pattern(groups, kinds), kinds)
        else:
            if self.pattern:
                kinds = {name: kind.without(without) for name, kind in self.pattern.all_kinds.items()}
                self.pattern = make_pattern(self.pattern.groups, kinds)
            fragments = self._move_to_kinds(fragments, recipe)
        self.left_out = [name for name in self.left_out if name not in fragments] + without
        self.added = [name for name in self.added if name not in without] + fragments
        self.settings |= settings
        for mine, tables in ((self.hf, rule.hf), (self.presets, rule.table.presets)):
            for name, table in tables.items():
                mine[name] = {**mine.get(name, {}), **table}
        self.followed.append(rule)
        return True

    def _move_to_kinds(self, names: list[str], recipe: Recipe) -> list[str]:
        """Adds fragments to the kinds of layer that select what they require; returns the other fragments."""
        pattern = self.pattern or recipe.pattern
        kinds, rest = dict(pattern.all_kinds), []
        for name in names:
            fragment = recipe.library.fragment(name)
            hosts = {kind.name for kind in kinds.values() if _has_required(kind.fragments, fragment.requires)}
            kinds |= {host: replace(kinds[host], fragments=(*kinds[host].fragments, name)) for host in hosts}
            rest += [] if hosts else [name]
        if rest != names:
            self.pattern = make_pattern(pattern.groups, kinds)
        return rest

    def set_pattern(self, pattern: Pattern, kinds: dict[str, Kind]) -> None:
        """Selects a pattern of some of the kinds, and the `absent` fragments of the others."""
        self.pattern = pattern
        for kind in kinds.values():
            self.added = [name for name in self.added if name not in kind.absent]
            self.added += kind.absent if kind.name not in pattern.kinds else ()

    def tables(self) -> dict[str, Any]:
        """Returns the tables of the architecture file, without the sizes of the checkpoint."""
        common = self.base.package_file.data.fragments  # the family may exclude some of them, and its fit not
        selected = list(dict.fromkeys([*(fragment.name for fragment in self.base.fragments), *common]))
        left_out, added = set(self.left_out), list(self.added)
        if self.pattern:  # all layers do not have the fragments of one kind
            selected = [name for name in selected if name not in self.base.pattern.kind_fragments]
            left_out |= self.pattern.kind_fragments
            added = [name for name in added if name not in self.pattern.kind_fragments]
        tables = {
            "without": [name for name in selected if name in left_out],
            "without_presets": self.incomplete,
            "fragments": added,
            "settings": self.settings,
            **(to_tables(self.pattern) if self.pattern else {}),
            "presets": self.presets,
            "hf": self.hf,
        }
        return {"base": self.base.architecture, "title": self.name, **drop_empty(tables)}

    def select(self) -> Recipe:
        """Returns the recipe of the architecture file."""
        text = toml_text(self.tables(), self.path)
        return select(self.name, self.base.target, self.base.library.with_texts({self.path: text}))

    def complete_presets(self) -> Recipe:
        """Gives the tiny preset layers that fill the pattern; leaves out presets that lack a field or do not fill it.

        Returns:
            The recipe of the architecture file.
        """
        self.incomplete = []
        recipe = self.select()
        required = [member.name for fragment in recipe.fragments for member in fragment.fields if member.is_required]
        for preset, values in recipe.presets.items():
            missing = [member for member in required if member not in values]
            sizes = {member: value for member, (value, _) in values.items()}
            if preset == "tiny" and self.followed and missing:
                message = f"the preset 'tiny' leaves out {', '.join(missing)}, which a fragment of this rule adds"
                remedy = "Give it in [structure.presets.tiny] of the rule."
                raise LoomError(message, str(self.followed[-1].table.origin()), remedy)
            if not missing and (self.pattern is None or is_filled(self.pattern, sizes)):
                continue
            if preset == "tiny" and self.pattern and (layers := count_filling_layers(self.pattern, sizes)):
                self.presets["tiny"] = {**self.presets.get("tiny", {}), "layers": layers}
            else:
                self.incomplete.append(preset)
        return self.select()

    def explain(self, error: LoomError, hf: dict[str, Any]) -> LoomError:
        """Returns the error for a choice that cannot be woven: the given one if the family alone cannot be woven.

        Args:
            hf: config.json, completed where that was possible.
        """
        if not self.followed and not self.pattern:
            return error
        place = f"{error.where}: " if error.where else ""
        inner = f"{place}{error.message}".replace(self.path, "the file for it")
        names = ", ".join(dict.fromkeys(name for rule in self.followed for name in rule.names)) or "its kinds of layer"
        message = f"no fragments of {self.base.architecture} go together for {names}"
        missing = self.base.pattern.kinds.keys() - self.pattern.kinds.keys() if self.pattern else ()
        for kind in (kind for kind in self.base.pattern.kinds.values() if kind.name in missing and error.dependent):
            values = [f"{name} is {json.dumps(hf.get(name))}" for name in re.findall(r"hf\['(\w+)'\]", kind.where)]
            sizes = ", ".join([f"num_hidden_layers is {hf.get('num_hidden_layers')}", *values])
            message = f"{sizes}: no layer is {kind.name}, and {self.base.architecture} is woven for some"
        return LoomError(
            f"{message}:\n  {inner}", self.where, "Write a fragment for it, or use a checkpoint without it."
        )


@dataclass(frozen=True)
class FittedFamily:
    """A family after all rules that apply to a checkpoint.

    Attributes:
        choice: the selection by the rules.
        package: the readers of the architecture file.
        full: config.json with the values of settings that are left out.
        problems: settings that no rule covers.
    """

    choice: FamilyChoice
    package: ConfigReader
    full: dict[str, Any]
    problems: list[Problem]

    def text(self, tables: dict[str, Any], sizes: dict[str, object]) -> str:
        """Returns an architecture file with some tables, and with sizes as a preset of the architecture's name."""
        presets = tables.get("presets", {}) | {self.choice.name: sizes}
        return toml_text(tables | {"presets": presets}, self.choice.path)

    def sizes(self) -> dict[str, object]:
        """Returns the fields of Config for which config.json has a value."""
        values = {field: self.full.get(setting) for setting, field in self.package.sizes()}
        plain = {field: [*value] if isinstance(value, tuple) else value for field, value in values.items()}
        return {field: value for field, value in plain.items() if value is not None}


def fit(
    library: Library, family: str, target: str, hf: dict[str, Any], name: str, where: str, ignored: Iterable[str] = ()
) -> str:
    """Returns the text of an architecture file, based on a family, whose package reads a config.json.

    Args:
        name: of the architecture.
        where: the path of config.json, for errors.
        ignored: settings to accept though no fragment reads them; the architecture file and the package list them.
    """
    fitted = follow_rules(library, family, target, hf, name, where, ignored)
    if fitted.problems:
        raise UnsupportedSettings(fitted.problems, where)
    if reason := fitted.package.find_size_error(fitted.full, hf):
        listed = reason.replace("\n", "\n  ")
        raise LoomError(f"a package for it would refuse its sizes:\n  {listed}", where, "Fix them.")
    try:
        weave(name, target, fitted.package.recipe.library)
    except LoomError as error:
        raise fitted.choice.explain(error, fitted.full) from None
    return fitted.text(fitted.choice.tables(), fitted.sizes())


def follow_rules(
    library: Library, family: str, target: str, hf: dict[str, Any], name: str, where: str, ignored: Iterable[str] = ()
) -> FittedFamily:
    """Follows the rules of a family for the settings that its package cannot read, until none applies."""
    choice, full = FamilyChoice(select(family, target, library), name, where), hf
    if ignored:
        choice.settings["ignored"] = sorted({*read_ignored(choice.base), *ignored})
    for _ in range(30):  # a rule may bring the need of another
        try:
            package = ConfigReader(choice.complete_presets())
        except LoomError as error:
            raise choice.explain(error, full) from None
        recipe, full = package.recipe, package.complete(hf, where)
        if wrong_types := find_wrong_types(package, full):
            raise UnsupportedSettings(wrong_types, where)
        problems = find_unread(package, full, family, where)
        problems += find_uncovered(package, hf, full, family, where)
        if any(
            rule not in choice.followed and rule.covers(problem.setting, full) and choice.follow(rule, recipe, full)
            for problem in problems
            for rule in recipe.rules  # the nearest first
        ):
            continue
        if "num_hidden_layers" in full and (
            pattern := find_other_pattern(recipe, choice.left_out, package.config(full), full, where)
        ):
            choice.set_pattern(pattern, recipe.pattern.all_kinds)
            continue
        return FittedFamily(choice, package, full, problems)
    path = choice.base.architecture_file.path
    raise LoomError("the rules of this family contradict each other", path, "Fix one of them.")


def _has_required(names: Iterable[str], required: Iterable[str]) -> bool:
    """Returns whether one of the fragments, with its folder or without, is required."""
    forms = {form for name in names for form in (name, name.split("/")[-1])}
    return any(not forms.isdisjoint(alternatives.split(" or ")) for alternatives in required)
