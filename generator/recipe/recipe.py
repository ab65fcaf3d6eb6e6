"""Selects what takes part in a package: the fragments, settings and presets of an architecture on a target."""

from __future__ import annotations

import re
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
from generator.recipe.schema import ArchitectureToml, PackageToml, TargetToml
from generator.recipe.toml import AnyFile, Toml

PACKAGE_FILE = "templates/package.toml"
Lineage = tuple[Toml[ArchitectureToml], ...]
Chosen = dict[str, tuple[Fragment, Origin]]  # fragment -> with the line that selects it
Presets = dict[str, dict[str, tuple[object, Origin]]]


@dataclass(frozen=True)
class Recipe:
    """The sources and settings of a package.

    Attributes:
        lineage: the architecture's file and those of its bases, the first base first.
        fragments: in order of selection: the architecture's, the target's, then those of every package.
        left_out: fragments that bases, or kinds of layer, select and that the package does not have.
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
    target_file: Toml[TargetToml]
    package_file: Toml[PackageToml]
    fragments: tuple[Fragment, ...]
    left_out: tuple[Fragment, ...]
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
    def architecture_file(self) -> Toml[ArchitectureToml]:
        return self.lineage[-1]

    def said(self, key: str) -> str:
        """Returns what the architecture says of itself, or else the nearest of its bases."""
        return said(self.lineage, key)

    def merged(self, key: str) -> dict:
        """Returns a table of the package file, with those of its parts and that of the target on top."""
        return {name: value for _, _, table in self._tables(key) for name, value in table.items()}

    @property
    def templates(self) -> dict[str, str]:
        """File -> template, without those that go with parts which the package does not have."""
        parts = self.package_file.data.parts
        gone = {file for name, part in parts.items() if name not in self.parts for file in part.files}
        return {file: template for file, template in self.merged("templates").items() if file not in gone}

    def origin(self, key: str, name: str) -> Origin:
        """Returns the line of an entry of a merged table."""
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
    target_file = Toml.read(library.files, f"targets/{target}/target.toml", TargetToml)
    package_file = Toml.read(library.files, PACKAGE_FILE, PackageToml)
    pattern = read_pattern(lineage)
    check_parts(package_file, library)
    parts = chosen_parts(parts, package_file)
    chosen = _chosen((*lineage, target_file, package_file), pattern, target, library)
    without = {*without, *left_out(chosen, parts, package_file)}
    chosen = _compatible({name: item for name, item in chosen.items() if name not in without}, package_file)
    _check_company(chosen, library)
    fragments = tuple(fragment for fragment, _ in chosen.values())
    gone = _left_out(lineage, library, without)
    pattern = replace(pattern, further=tuple(pair for f in fragments for pair in f.further_layers))
    presets = _presets(lineage, target_file, _fields(gone) - _fields(fragments))
    package = {"architecture": architecture, "target": target, "package": f"{architecture}_{target}"}
    package |= {key: text for key in ("title", "model_type", "reference") if (text := said(lineage, key))}
    files: tuple[AnyFile, ...] = (package_file, *lineage, target_file)
    settings = [*(file.data.settings for file in files), package, _layer_settings(pattern, presets)]
    return Recipe(
        architecture=architecture,
        target=target,
        library=library,
        lineage=lineage,
        target_file=target_file,
        package_file=package_file,
        fragments=fragments,
        left_out=gone,
        settings={name: value for table in settings for name, value in table.items()},
        presets=presets,
        parts=parts,
        pattern=pattern,
        rules=read_rules((*reversed(lineage), package_file), library),
        neutral=read_neutral((*lineage, package_file)),
    )


def _layer_settings(pattern: Pattern, presets: Presets) -> dict[str, object]:
    """Returns literals that follow from the pattern of the layers.

    has_kinds: whether some layers are unlike others. period: layers of the longest pattern. whole_period: of which the
    layers must be a multiple. few_layers: as few as make a model with every kind of layer, two at least; the tiny
    preset knows where several groups share them.
    """
    period, one = max(group.period for group in pattern.groups), len(pattern.groups) == 1
    tiny, _ = presets.get("tiny", {}).get("layers", (period, None))
    return {
        "has_kinds": bool(pattern.of_kinds or pattern.further),
        "period": period,
        "whole_period": period if one else 1,
        "few_layers": max(period, 2) if one else tiny,
    }


def said(lineage: Lineage, key: str) -> str:
    """Returns what an architecture says of itself, or else the nearest of its bases."""
    return next((found for file in reversed(lineage) if (found := getattr(file.data, key))), "")


def lineage_of(architecture: str, library: Library) -> Lineage:
    """Returns the file of an architecture after those of its bases."""
    files = [Toml.read(library.files, f"templates/architectures/{architecture}.toml", ArchitectureToml)]
    names = [architecture]
    while base := files[0].data.base:
        where = str(files[0].origin("base"))
        if base in names:
            raise LoomError(f"{' -> '.join([*names, base])}: bases go in a circle", where, "Name another base.")
        if base not in library.architectures():
            raise LoomError(f"unknown architecture {base!r}", where, nearest(base, library.architectures()))
        names.append(base)
        files.insert(0, Toml.read(library.files, f"templates/architectures/{base}.toml", ArchitectureToml))
    return tuple(files)


def _chosen(files: tuple[AnyFile, ...], pattern: Pattern, target: str, library: Library) -> Chosen:
    """Returns the selected fragments, each with the line that selects it, in order.

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


def _compatible(chosen: Chosen, package_file: Toml[PackageToml]) -> Chosen:
    """Leaves out what the package file selects for every package and what the others do not go together with."""
    names = _names(chosen)
    common = package_file.data.fragments
    kept = {
        name: (fragment, where)
        for name, (fragment, where) in chosen.items()
        if name not in common
        or (all(_is_met(other, names) for other in fragment.requires) and names.isdisjoint(fragment.excludes))
    }
    return kept if kept.keys() == chosen.keys() else _compatible(kept, package_file)


def _names(chosen: Chosen) -> set[str]:
    return {name for fragment, _ in chosen.values() for name in (fragment.name, fragment.short)}


def _line_of(text: str, path: str, name: str) -> Origin:
    """Returns the line that has `name` as a string, or as one of `rope or alibi`."""
    string = re.compile(rf"""["'](.* or )?{re.escape(name)}( or .*)?["']""")
    lines = enumerate(text.splitlines(), start=1)
    return Origin(path, next((n for n, line in lines if not line.lstrip().startswith("#") and string.search(line)), 1))


def _check_company(chosen: Chosen, library: Library) -> None:
    """Checks `requires` and `excludes` of every selected fragment."""
    names = _names(chosen)
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


def _left_out(lineage: Lineage, library: Library, without: Collection[str]) -> tuple[Fragment, ...]:
    """Returns the fragments that are left out: by an architecture, with a kind of layer that its pattern does not
    have, or on demand; those of kinds that it has are among them."""
    kinds = [(file, kind) for file in lineage for kind in file.data.kinds.values()]
    names = [(name, file.path) for file in lineage for name in file.data.without]
    names += [(name, file.path) for file, kind in kinds for name in kind.fragments]
    names += [(name, PACKAGE_FILE) for name in without]
    return tuple(library.fragment(name, path) for name, path in names)


def _fields(fragments: Iterable[Fragment]) -> set[str]:
    """Returns the config fields of some fragments."""
    return {member.name for fragment in fragments for member in fragment.fields if member.is_field}


def _presets(lineage: Lineage, target: Toml[TargetToml], left_out: set[str]) -> Presets:
    """Returns the presets of the architecture and its bases, with those of the same name of the target on top.

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
