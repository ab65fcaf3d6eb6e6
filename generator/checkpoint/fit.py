"""The text of an architecture file whose package fits a checkpoint, from its config.json and a family's rules.

What differs in structure between checkpoints of one family (tied or not, which layers are sparse) is chosen here: what
of the family's package reads a config.json is woven and asked what it cannot read, and again with what the rules select
instead. The package itself is woven once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from generator.checkpoint.layers import is_filled, kinds_by_where, layers_that_fill, other_pattern, pattern_tables
from generator.checkpoint.problems import Problem, Unfit, ignored_by, not_covered, unread, wrong_values
from generator.checkpoint.readers import Readers
from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.pattern import Kind, Pattern, find_groups, make_pattern
from generator.recipe.recipe import Recipe, select
from generator.recipe.rules import Rule
from generator.recipe.toml import toml_text
from generator.weaver import weave


@dataclass
class FamilyChoice:
    """The content of an architecture file for a checkpoint, beside its sizes.

    Attributes:
        base: the family.
        left_out, added: fragments.
        hf: what the file states of checkpoints: table -> key -> value.
        presets: preset -> field -> value.
        pattern: of the layers, where it is not the family's own.
        incomplete: presets of the family that lack a field which was added.
        followed: the rules that chose all this.
    """

    base: Recipe
    left_out: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    hf: dict[str, dict[str, Any]] = field(default_factory=dict)
    presets: dict[str, dict[str, object]] = field(default_factory=dict)
    pattern: Pattern | None = None
    incomplete: list[str] = field(default_factory=list)
    followed: list[Rule] = field(default_factory=list)

    def follow(self, rule: Rule, recipe: Recipe, hf: dict[str, Any], shown: str) -> bool:
        """Selects what a rule says; returns whether that changes anything."""
        selected = {fragment.name for fragment in recipe.fragments}
        stay = selected - recipe.pattern.of_kinds if rule.kinds else selected
        spare = {name for kind in recipe.pattern.spare.values() for name in kind.fragments}
        without = [name for name in rule.table.without if name in selected | spare]
        fragments = [name for name in rule.table.fragments if name not in stay]
        settings = {name: it for name, it in rule.settings_for(hf).items() if recipe.settings.get(name) != it}
        if not (without or fragments or settings or rule.hf or rule.kinds):
            return False
        if rule.kinds:  # what an earlier rule left out stays out of them
            groups = rule.groups or find_groups(kinds_by_where(rule.kinds, hf, shown))
            kinds = {name: kind.without(self.left_out) for name, kind in rule.kinds.items()}
            self.take(make_pattern(groups, kinds), kinds)
        elif self.pattern:
            kinds = {name: kind.without(without) for name, kind in self.pattern.every.items()}
            self.pattern = make_pattern(self.pattern.groups, kinds)
        if not rule.kinds:
            fragments = self._beside_what_they_require(fragments, recipe)
        self.left_out = [name for name in self.left_out if name not in fragments] + without
        self.added = [name for name in self.added if name not in without] + fragments
        self.settings |= settings
        for mine, tables in ((self.hf, rule.hf), (self.presets, rule.table.presets)):
            for name, table in tables.items():
                mine[name] = {**mine.get(name, {}), **table}
        self.followed.append(rule)
        return True

    def _beside_what_they_require(self, names: list[str], recipe: Recipe) -> list[str]:
        """Puts fragments into the kinds of layer that alone have what these require; returns those of all layers."""
        pattern = self.pattern or recipe.pattern
        kinds, rest = dict(pattern.every), []
        for name in names:
            fragment = recipe.library.fragment(name)
            some = {kind.name for kind in kinds.values() if _has_one(kind.fragments, fragment.requires)}
            kinds |= {n: replace(kinds[n], fragments=(*kinds[n].fragments, name)) for n in some}
            rest += [] if some else [name]
        if rest != names:
            self.pattern = make_pattern(pattern.groups, kinds)
        return rest

    def take(self, pattern: Pattern, kinds: dict[str, Kind]) -> None:
        """Selects a pattern of some of these kinds, and what stands in for those that no layer is of."""
        self.pattern = pattern
        for kind in kinds.values():
            self.added = [name for name in self.added if name not in kind.absent]
            self.added += kind.absent if kind.name not in pattern.kinds else ()

    def tables(self, title: str) -> dict[str, Any]:
        """Returns the tables of the architecture file, without the sizes of the checkpoint."""
        # and what a package has where nothing that it selects excludes it
        common = self.base.package_file.data.fragments
        selected = list(dict.fromkeys([*(fragment.name for fragment in self.base.fragments), *common]))
        out, added = set(self.left_out), list(self.added)
        if self.pattern:  # what a kind selects is left out of what all layers have
            selected = [name for name in selected if name not in self.base.pattern.of_kinds]
            out |= self.pattern.of_kinds
            added = [name for name in added if name not in self.pattern.of_kinds]
        tables = {
            "without": [name for name in selected if name in out],
            "without_presets": self.incomplete,
            "fragments": added,
            "settings": self.settings,
            **(pattern_tables(self.pattern) if self.pattern else {}),
            "presets": self.presets,
            "hf": self.hf,
        }
        given = {key: value for key, value in tables.items() if value}
        return {"base": self.base.architecture, "title": title, **given}

    def refused(self, error: LoomError, name: str, shown: str) -> LoomError:
        """Returns why what config.json asks for does not weave; the error itself, where that is the family's own."""
        if not self.followed and not self.pattern:
            return error
        names = ", ".join(dict.fromkeys(name for rule in self.followed for name in rule.names)) or "its kinds of layer"
        inner = str(error).replace(_path(name), "the file for it")
        message = f"no fragments of {self.base.architecture} go together for {names}:\n  {inner}"
        return LoomError(message, shown, "Write a fragment for it, or use a checkpoint without it.")


@dataclass(frozen=True)
class FittedFamily:
    """A family's package, structured as a checkpoint asks for as far as rules know how.

    Attributes:
        tables: of the architecture file, without the sizes of the checkpoint.
        full: the settings of config.json, with those that are left out.
        choice: what the rules selected.
        recipe: what the tables select.
        problems: what no rule covers.
    """

    tables: dict[str, Any]
    choice: FamilyChoice
    package: Readers
    full: dict[str, Any]
    recipe: Recipe
    problems: list[Problem]

    def text(self, name: str, sizes: dict[str, object]) -> str:
        """Returns the architecture file, with the sizes as a preset of its name."""
        presets = self.tables.get("presets", {}) | {name: sizes}
        return toml_text(self.tables | {"presets": presets}, _path(name))

    def sizes(self) -> dict[str, object]:
        """Returns fields of Config, where config.json has a value."""
        found = {field: self.full.get(setting) for setting, field in self.package.sizes()}
        plain = {field: [*value] if isinstance(value, tuple) else value for field, value in found.items()}
        return {field: value for field, value in plain.items() if value is not None}


def fit(
    library: Library, family: str, target: str, hf: dict[str, Any], name: str, shown: str, ignored: Iterable[str] = ()
) -> str:
    """Returns the text of an architecture file on top of a family's, whose package fits a config.json.

    Args:
        shown: the path of config.json, for errors.
        ignored: settings that are accepted though nothing covers them; the architecture file and the package say so.
    """
    fitted = settle(library, family, target, hf, name, shown, ignored)
    if fitted.problems:
        raise Unfit(fitted.problems, shown)
    if reason := fitted.package.refusal(fitted.full, hf):
        listed = reason.replace("\n", "\n  ")
        raise LoomError(f"a package for it would refuse its sizes:\n  {listed}", shown, "Fix them.")
    try:
        weave(name, target, fitted.recipe.library)
    except LoomError as error:
        raise fitted.choice.refused(error, name, shown) from None
    return fitted.text(name, fitted.sizes())


def settle(
    library: Library, family: str, target: str, hf: dict[str, Any], name: str, shown: str, ignored: Iterable[str] = ()
) -> FittedFamily:
    """Asks a family's package what it cannot read, and follows the rules for that, until none is left to follow."""
    choice = FamilyChoice(select(family, target, library))
    if ignored:
        choice.settings["ignored"] = sorted({*ignored_by(choice.base), *ignored})
    for _ in range(30):  # a rule may bring the need of another
        try:
            tables, recipe = complete(choice, library, target, name, name)
            package = Readers(recipe)
        except LoomError as error:
            raise choice.refused(error, name, shown) from None
        full = package.complete(hf, shown)
        if wrong := wrong_values(package, full, recipe):
            raise Unfit(wrong, shown)
        problems = unread(package, full, family, shown)
        problems += not_covered(package, recipe, hf, full, family, shown)
        if any(
            rule not in choice.followed
            and rule.covers(problem.setting, full)
            and choice.follow(rule, recipe, full, shown)
            for problem in problems
            for rule in recipe.rules  # the nearest first
        ):
            continue
        if "num_hidden_layers" in full and (
            pattern := other_pattern(recipe, choice.left_out, package.config(full), full, shown)
        ):
            choice.take(pattern, recipe.pattern.every)
            continue
        return FittedFamily(tables, choice, package, full, recipe, problems)
    raise LoomError("the rules of this family contradict each other", _path(family), "Fix one of them.")


def complete(
    choice: FamilyChoice, library: Library, target: str, name: str, title: str
) -> tuple[dict[str, Any], Recipe]:
    """Returns the tables of an architecture file for what was chosen so far, and what they select.

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
            choice.presets["tiny"] = {**choice.presets.get("tiny", {}), "layers": layers}
        else:
            choice.incomplete.append(preset)
    tables = choice.tables(title)
    return tables, _select(tables, library, target, name)


def _select(tables: dict[str, Any], library: Library, target: str, name: str) -> Recipe:
    return select(name, target, library.with_texts({_path(name): toml_text(tables, _path(name))}))


def _path(architecture: str) -> str:
    return f"templates/architectures/{architecture}.toml"


def _has_one(names: Iterable[str], required: Iterable[str]) -> bool:
    """Whether one of the names, with its folder or without, is required."""
    own = {form for name in names for form in (name, name.split("/")[-1])}
    return any(not own.isdisjoint(either.split(" or ")) for either in required)
