"""Selects what takes part in a package: the fragments, settings and presets of an architecture on a target."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.parts import ALL, check_parts, chosen_parts, left_out
from generator.recipe.pattern import Pattern, read_pattern
from generator.recipe.rules import Neutral, Rule, read_neutral, read_rules
from generator.recipe.schema import Architecture, Package, Target
from generator.recipe.stated import state
from generator.recipe.toml import AnyFile, Toml

PACKAGE_FILE = "templates/package.toml"
Lineage = tuple[Toml[Architecture], ...]
Chosen = dict[str, tuple[Fragment, Origin]]  # fragment -> with the line that selects it
Presets = dict[str, dict[str, tuple[object, Origin]]]


@dataclass(frozen=True)
class Recipe:
    """What a package is woven from.

    Attributes:
        lineage: the architecture's file and those of its bases, the first base first.
        fragments: in order of selection: the architecture's, the target's, then those of every package.
        settings: literals for `setting("...")`.
        presets: preset -> config field -> (value, the line that gives it).
        pattern: in which the layers repeat.
        parts: what the package can do besides training.
        rules: what a checkpoint may choose; those of the architecture itself first, those for all families last.
        neutral: settings of checkpoints that change nothing.
    """

    architecture: str
    target: str
    library: Library
    lineage: Lineage
    target_file: Toml[Target]
    package_file: Toml[Package]
    fragments: tuple[Fragment, ...]
    settings: dict[str, object]
    presets: Presets
    pattern: Pattern
    parts: tuple[str, ...]
    rules: tuple[Rule, ...] = ()
    neutral: tuple[Neutral, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.architecture}_{self.target}"

    @property
    def architecture_file(self) -> Toml[Architecture]:
        return self.lineage[-1]

    def said(self, key: str) -> str:
        """What the architecture says of itself, or else the nearest of its bases."""
        return said(self.lineage, key)

    def merged(self, key: str) -> dict:
        """A table of the package file, with those of its parts and that of the target on top."""
        return {name: value for _, _, table in self._tables(key) for name, value in table.items()}

    @property
    def templates(self) -> dict[str, str]:
        """File -> template, without those that go with parts which the package does not have."""
        parts = self.package_file.data.parts
        gone = {file for name, part in parts.items() if name not in self.parts for file in part.files}
        return {file: template for file, template in self.merged("templates").items() if file not in gone}

    def origin(self, key: str, name: str) -> Origin:
        """The line of an entry of a merged table."""
        tables = reversed(self._tables(key))
        return next(file.origin(*keys, name) for file, keys, table in tables if name in table)

    def _tables(self, key: str) -> list[tuple[AnyFile, tuple[str, ...], dict]]:
        file, target = self.package_file, self.target_file
        parts = [(file, ("parts", part, key), getattr(file.data.parts[part], key, {})) for part in self.parts]
        return [(file, (key,), getattr(file.data, key)), *parts, (target, (key,), getattr(target.data, key, {}))]


def select(
    architecture: str, target: str, library: Library, without: Collection[str] = (), parts: Collection[str] = (ALL,)
) -> Recipe:
    """Reads an architecture and a target, and finds their fragments.

    Args:
        without: fragments to leave out of what they select.
        parts: what the package can do besides training.
    """
    if architecture not in library.architectures():
        raise LoomError(f"unknown architecture {architecture!r}", None, nearest(architecture, library.architectures()))
    if target not in library.targets():
        raise LoomError(f"unknown target {target!r}", None, nearest(target, library.targets()))
    lineage = lineage_of(architecture, library)
    target_file = Toml.read(library.files, f"targets/{target}/target.toml", Target)
    package_file = Toml.read(library.files, PACKAGE_FILE, Package)
    files: tuple[AnyFile, ...] = (*lineage, target_file, package_file)
    pattern = read_pattern(lineage)
    check_parts(package_file, library)
    parts = chosen_parts(parts, package_file)
    chosen = _chosen(files, pattern, target, library)
    without = {*without, *left_out(chosen, parts, package_file)}
    chosen = {name: item for name, item in chosen.items() if name not in without}
    chosen = _where_it_makes_sense(chosen, package_file)
    _check_company(chosen, library)
    gone = _left_out(lineage, library, without)
    fragments = state([fragment for fragment, _ in chosen.values()], lineage, gone)
    settings: dict[str, object] = {}
    for file in (package_file, *files[:-1]):
        settings |= file.data.settings
    recipe = Recipe(
        architecture=architecture,
        target=target,
        library=library,
        lineage=lineage,
        target_file=target_file,
        package_file=package_file,
        fragments=fragments,
        settings=settings,
        presets=_presets(lineage, target_file, _fields(gone) - _fields(fragments)),
        parts=parts,
        pattern=replace(pattern, further=tuple(pair for f in fragments for pair in f.further_layers)),
        rules=read_rules((*reversed(lineage), package_file), library),
        neutral=read_neutral((*lineage, package_file)),
    )
    settings |= {"architecture": architecture, "target": target, "package": recipe.name}
    settings |= {key: recipe.said(key) for key in ("title", "model_type", "reference") if recipe.said(key)}
    has_kinds = bool(recipe.pattern.of_kinds or recipe.pattern.further)
    settings |= {"has_kinds": has_kinds}
    return replace(recipe, settings=settings | _layer_settings(recipe))


def _layer_settings(recipe: Recipe) -> dict[str, object]:
    """Literals that follow from the pattern of the layers.

    period: layers of the longest pattern. whole_period: of which the layers must be a multiple.
    few_layers: as few as make a model with every kind of layer, two at least; the tiny preset knows where several
    groups share them.
    """
    groups = recipe.pattern.groups
    period = max(group.period for group in groups)
    one = len(groups) == 1
    tiny, _ = recipe.presets.get("tiny", {}).get("layers", (period, None))
    return {"period": period, "whole_period": period if one else 1, "few_layers": max(period, 2) if one else tiny}


def said(lineage: Lineage, key: str) -> str:
    """What an architecture says of itself, or else the nearest of its bases."""
    return next((found for file in reversed(lineage) if (found := getattr(file.data, key))), "")


def lineage_of(architecture: str, library: Library) -> Lineage:
    """The file of an architecture after those of its bases."""
    files = [Toml.read(library.files, f"templates/architectures/{architecture}.toml", Architecture)]
    names = [architecture]
    while base := files[0].data.base:
        where = str(files[0].origin("base"))
        if base in names:
            raise LoomError(f"{' -> '.join([*names, base])}: bases go in a circle", where, "Name another base.")
        if base not in library.architectures():
            raise LoomError(f"unknown architecture {base!r}", where, nearest(base, library.architectures()))
        names.append(base)
        files.insert(0, Toml.read(library.files, f"templates/architectures/{base}.toml", Architecture))
    return tuple(files)


def _chosen(files: tuple[AnyFile, ...], pattern: Pattern, target: str, library: Library) -> Chosen:
    """The selected fragments, each with the line that selects it, in order.

    An architecture may change for one target what all have chosen, under [targets.NAME].
    """
    chosen: Chosen = {}
    dropped: dict[str, Origin] = {}  # by an architecture, of what the target or every package selects after it
    tables: list[tuple[AnyFile, tuple[str, ...], Any]] = [(file, (), file.data) for file in files]
    changes = [(file, getattr(file.data, "targets", {}).get(target)) for file in files]
    tables += [(file, ("targets", target), table) for file, table in changes if table]
    for file, keys, table in tables:
        for number, name in enumerate(getattr(table, "without", ())):
            if chosen.pop(name, None) is None:
                dropped[name] = file.origin(*keys, "without", number)
        selected = [(name, file.origin(*keys, "fragments", number)) for number, name in enumerate(table.fragments)]
        of_kinds: dict[str, Origin] = {}
        for kind in () if keys else pattern.kinds.values():
            if kind.origin and kind.origin.path == file.path:
                for number, name in enumerate(kind.fragments):
                    of_kinds.setdefault(name, file.origin("kinds", kind.name, "fragments", number))
        for name, where in (*selected, *of_kinds.items()):
            if name in chosen:
                raise LoomError(f"fragment {name!r} is also selected at {chosen[name][1]}", str(where), "Remove one.")
            if dropped.pop(name, None) is None:
                chosen[name] = (library.fragment(name, str(where)), where)
    for name, where in dropped.items():
        raise LoomError(f"nothing selects {name!r}, which is to be left out", str(where), nearest(name, chosen))
    return chosen


def _line_of(text: str, path: str, name: str) -> Origin | None:
    """The line that has `name` as a string."""
    for number, line in enumerate(text.splitlines(), start=1):
        if (f'"{name}"' in line or f"'{name}'" in line) and not line.lstrip().startswith("#"):
            return Origin(path, number)
    return None


def _check_company(chosen: Chosen, library: Library) -> None:
    """`requires` and `excludes` of every selected fragment."""
    names = {name for fragment, _ in chosen.values() for name in (fragment.name, fragment.short)}
    known = {name for path in library.fragments() for name in (path, path.split("/")[-1])}
    for fragment, where in chosen.values():
        for word, others in (("requires", fragment.requires), ("excludes", fragment.excludes)):
            for other in (name for either in others for name in either.split(" or ")):
                if other not in known:
                    place = _line_of(library.files[fragment.path], fragment.path, other)
                    raise LoomError(f"{word} an unknown fragment {other!r}", str(place), nearest(other, known))
        for other in fragment.requires:
            if not _is_met(other, names):
                remedy = f'Add "{other.split(" or ")[0]}" to the fragments, or take "{fragment.name}" away.'
                message = f"{fragment.name} requires {other}, which is not selected"
                raise LoomError(message, str(where), remedy, dependent=fragment.name)
        for other in fragment.excludes:
            if other in names:
                line = next(line for peer, line in chosen.values() if other in (peer.name, peer.short))
                remedy = "Take one of them away, or for one target under [targets.NAME] of the architecture."
                raise LoomError(f"{fragment.name} excludes {other}, selected at {line}", str(where), remedy)


def _is_met(required: str, names: set[str]) -> bool:
    """Whether one of `rope or alibi` is selected."""
    return not names.isdisjoint(required.split(" or "))


def _where_it_makes_sense(chosen: Chosen, package_file: Toml[Package]) -> Chosen:
    """What is selected, without what the package file selects and which requires what nobody does, or excludes it."""
    names = {name for fragment, _ in chosen.values() for name in (fragment.name, fragment.short)}
    common = package_file.data.fragments

    def makes_sense(fragment: Fragment) -> bool:
        return all(_is_met(other, names) for other in fragment.requires) and names.isdisjoint(fragment.excludes)

    kept = {n: item for n, item in chosen.items() if n not in common or makes_sense(item[0])}
    return _where_it_makes_sense(kept, package_file) if kept.keys() != chosen.keys() else kept


def _left_out(lineage: Lineage, library: Library, without: Collection[str]) -> list[Fragment]:
    """The fragments that are left out: by an architecture, with a kind of layer that its pattern does not have, or on
    demand; those of kinds that it has are among them."""
    out = [library.fragment(name, file.path) for file in lineage for name in file.data.without]
    kinds = ((file.path, kind) for file in lineage for kind in file.data.kinds.values())
    out += [library.fragment(name, path) for path, kind in kinds for name in kind.fragments]
    return out + [library.fragment(name, PACKAGE_FILE) for name in without]


def _fields(fragments: Iterable[Fragment]) -> set[str]:
    """The config fields of some fragments."""
    return {member.name for fragment in fragments for member in fragment.fields if member.is_field}


def _presets(lineage: Lineage, target: Toml[Target], left_out: set[str]) -> Presets:
    """The presets of the architecture and its bases, with what the target sets for a preset of that name on top.

    Args:
        left_out: fields that bases may give, and that are passed over.
    """
    presets: Presets = {}
    files: tuple[AnyFile, ...] = (*lineage, target)
    for file in files:
        for number, preset in enumerate(getattr(file.data, "without_presets", ())):
            if presets.pop(preset, None) is None:
                message = f"no base has the preset {preset!r}, which is to be left out"
                raise LoomError(message, str(file.origin("without_presets", number)), nearest(preset, presets))
        for preset, fields in file.data.presets.items():
            if file is target and preset not in presets:
                continue
            table = presets.setdefault(preset, {})
            for name, value in fields.items():
                if file is lineage[-1] or name not in left_out:
                    frozen = tuple(value) if isinstance(value, list) else value  # as Config is
                    table[name] = (frozen, file.origin("presets", preset, name))
    return presets
