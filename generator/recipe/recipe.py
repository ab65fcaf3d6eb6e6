"""Selects the fragments, settings and presets of a package: of an architecture on a target."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.expressions import evaluate
from generator.recipe.library import Library
from generator.recipe.parts import (
    Selection,
    check_defaults,
    check_parts,
    check_parts_add,
    find_unfit,
    fragments_of_other_parts,
    select_parts,
)
from generator.recipe.pattern import Pattern, read_pattern
from generator.recipe.recipes import Recipes, read_chips, read_recipes
from generator.recipe.requirements import check_requirements, drop_incompatible
from generator.recipe.rules import Rule, read_rules
from generator.recipe.schema import ALL, ArchitectureToml, NeutralTable, PackageToml, TargetToml
from generator.recipe.toml import AnyFile, Toml
from generator.recipe.typed import TomlTable

PACKAGE_FILE = "templates/package.toml"
Lineage = tuple[Toml[ArchitectureToml], ...]
Presets = dict[str, dict[str, tuple[object, Origin]]]  # preset -> field of Config -> value, and the line that gives it


@dataclass(frozen=True)
class Recipe:
    """The sources and settings of a package.

    Attributes:
        lineage: the files of the architecture and its bases, the first base first.
        fragments: in order of selection: those of the architecture, of the target, of every package.
        left_out: fragments that a base or a kind of layer selects and the package does not have.
        settings: name -> value of `setting("...")`.
        recipes: what presets take on some hardware.
        pattern: the layers.
        parts: names of those that the package has, besides training.
        unfit_parts: names of those that the model cannot have.
        rules: selections by a checkpoint's settings; those of the architecture first, those for all families last.
        neutral: settings of checkpoints that do not change the computation.
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
    recipes: Recipes
    pattern: Pattern
    parts: tuple[str, ...]
    unfit_parts: frozenset[str]
    rules: tuple[Rule, ...] = ()
    neutral: tuple[NeutralTable, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.architecture}_{self.target}"

    @property
    def architecture_file(self) -> Toml[ArchitectureToml]:
        return self.lineage[-1]

    def merged(self, key: str) -> dict:
        """Returns a table of the package file, overridden by those of the parts and of the target."""
        return {name: value for table in self._tables for name, value in getattr(table, key, {}).items()}

    @property
    def templates(self) -> dict[str, str]:
        """File -> template, without files that belong to a part which the package does not have."""
        parts = self.package_file.data.parts
        absent = {file for name, part in parts.items() if name not in self.parts for file in part.files}
        return {file: template for file, template in self.merged("templates").items() if file not in absent}

    def is_left_out(self, fragment: str) -> bool:
        """Returns whether a fragment belongs only to parts that the package does not have."""
        return bool(fragments_of_other_parts([fragment], self.parts, self.package_file))

    def origin(self, key: str, name: str) -> Origin:
        """Returns the line of an entry of a merged table."""
        return next(t.origin(key, name) for t in reversed(self._tables) if name in getattr(t, key, {}))

    @property
    def _tables(self) -> list[TomlTable]:
        package = self.package_file.data
        return [package, *(package.parts[part] for part in self.parts), self.target_file.data]


def select(
    architecture: str, target: str, library: Library, without: Collection[str] = (), parts: Collection[str] = (ALL,)
) -> Recipe:
    """Returns the recipe of an architecture on a target.

    Args:
        without: fragments to leave out.
        parts: names of parts, or "all".
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
    check_defaults(target_file, package_file)
    selection = _select_fragments((*lineage, target_file, package_file), pattern, target, library)
    unfit = find_unfit(package_file, selection, pattern)
    selected_parts = select_parts(parts, package_file, target, target_file.data.parts, unfit)
    without = {*without, *fragments_of_other_parts(selection, selected_parts, package_file)}
    selection = {name: item for name, item in selection.items() if name not in without}
    selected, selection = selection, drop_incompatible(selection, package_file)
    check_requirements(selection, library)
    check_parts_add(parts, selected, selection, package_file, architecture, target)
    fragments = tuple(fragment for fragment, _ in selection.values())
    left_out = _find_left_out(lineage, library, without)
    pattern = replace(pattern, further=tuple(pair for f in fragments for pair in f.further_layers))
    presets = _merge_presets(lineage, target_file, _collect_fields(left_out) - _collect_fields(fragments))
    package = {"architecture": architecture, "target": target, "package": f"{architecture}_{target}"}
    package |= {key: text for key in ("title", "model_type", "reference") if (text := find_inherited(lineage, key))}
    files: tuple[AnyFile, ...] = (package_file, *lineage, target_file)
    nearest_first: tuple[AnyFile, ...] = (*lineage[::-1], package_file)
    of_parts = [package_file.data.parts[part].settings for part in selected_parts]
    settings = [file.data.settings for file in files]
    settings = [settings[0], *of_parts, *settings[1:], package, _derive_settings(pattern, presets)]
    return Recipe(
        architecture=architecture,
        target=target,
        library=library,
        lineage=lineage,
        target_file=target_file,
        package_file=package_file,
        fragments=fragments,
        left_out=left_out,
        settings={name: value for table in settings for name, value in table.items()},
        presets=presets,
        recipes=read_recipes(
            library,
            target,
            architecture,
            presets,
            selected_parts,
            package_file.data.parts,
            read_chips(target_file),
        ),
        parts=selected_parts,
        unfit_parts=frozenset(unfit),
        pattern=pattern,
        rules=read_rules([rule for file in nearest_first for rule in file.data.structure], library),
        neutral=tuple(table for file in nearest_first for table in file.data.neutral),
    )


def _derive_settings(pattern: Pattern, presets: Presets) -> dict[str, object]:
    """Returns settings that follow from the pattern of the layers.

    has_kinds: whether layers differ. one_stack: whether all are scanned together. period: the length of the longest
    pattern. whole_period: the number that divides the number of layers except the layers_outside, those of groups with
    a fixed count. least_layers: the smallest number for which no group has less than none. few_layers: the smallest
    number, from two, for a model with every kind of layer; that of the tiny preset where several groups share the
    layers.
    """
    period, one_group = max(group.period for group in pattern.groups), len(pattern.groups) == 1
    fixed = [group for group in pattern.groups if group.count.isdecimal()]
    others = [group for group in pattern.groups if group not in fixed]
    tiny, _ = presets.get("tiny", {}).get("layers", (period, None))
    return {
        "has_kinds": bool(pattern.kind_fragments or pattern.further),
        "one_stack": len(pattern.numbers()) == 1,
        "period": period,
        "whole_period": others[0].period if len(others) == 1 else 1,
        "layers_outside": sum(int(group.count) * group.period for group in fixed),
        "least_layers": _find_least_layers(pattern),
        "few_layers": max(period, 2) if one_group else tiny,
    }


def _find_least_layers(pattern: Pattern) -> int:
    """Returns the smallest number of layers for which no group has less than none; 1 where other sizes matter too."""
    for number in range(1, 10_000):
        try:
            counts = [evaluate(group.count, {"config": SimpleNamespace(layers=number)}) for group in pattern.groups]
        except AttributeError:
            break
        if min(counts) >= 0:
            return number
    return 1


def find_inherited(lineage: Lineage, key: str) -> str:
    """Returns the value of a key in the file of an architecture, or in that of the nearest base that has it, or ''."""
    return next((value for file in reversed(lineage) if (value := getattr(file.data, key))), "")


def lineage_of(architecture: str, library: Library) -> Lineage:
    """Returns the files of the bases of an architecture, the first base first, and its own."""
    files = [Toml.read(library.files, f"templates/architectures/{architecture}.toml", ArchitectureToml)]
    names = [architecture]
    while base := files[0].data.base:
        where = str(files[0].origin("base"))
        if base in names:
            raise LoomError(f"{' -> '.join([*names, base])}: bases form a circle", where, "Name another base.")
        if base not in library.architectures():
            raise LoomError(f"unknown architecture {base!r}", where, nearest(base, library.architectures()))
        names.append(base)
        files.insert(0, Toml.read(library.files, f"templates/architectures/{base}.toml", ArchitectureToml))
    return tuple(files)


def _select_fragments(files: tuple[AnyFile, ...], pattern: Pattern, target: str, library: Library) -> Selection:
    """Returns the selected fragments in order. [targets.NAME] of an architecture changes the selection at the end."""
    selection: Selection = {}
    pending: dict[str, Origin] = {}  # fragments to leave out that only a later file selects
    changes = [getattr(file.data, "targets", {}).get(target) for file in files]
    for table in (*(file.data for file in files), *filter(None, changes)):
        for number, name in enumerate(getattr(table, "without", ())):
            if selection.pop(name, None) is None:
                pending[name] = table.origin("without", number)
        selected = [(name, table.origin("fragments", number)) for number, name in enumerate(table.fragments)]
        of_kinds: dict[str, Origin] = {}
        tables = getattr(table, "kinds", {})
        for kind, entry in ((kind, tables[kind]) for kind in pattern.all_kinds if kind in tables):
            if kind in pattern.kinds and pattern.kinds[kind].origin == entry.origin():
                for number, name in enumerate(entry.fragments):
                    of_kinds.setdefault(name, entry.origin("fragments", number))
        for name, where in (*selected, *of_kinds.items()):
            if name in selection:
                first, message = selection[name][1], f"fragment {name!r} is also selected at "
                if where.path != PACKAGE_FILE:
                    raise LoomError(f"{message}{first}", str(where), "Remove one.")
                parts = [f", and build --with {part}" for part, it in table.parts.items() if name in it.fragments]
                raise LoomError(f"{message}{where}", str(first), f"Take it away here{''.join(parts[:1])}.")
            if pending.pop(name, None) is None:
                selection[name] = (library.fragment(name, str(where)), where)
    for name, where in pending.items():
        raise LoomError(f"nothing selects {name!r}, which is to be left out", str(where), nearest(name, selection))
    return selection


def _find_left_out(lineage: Lineage, library: Library, without: Collection[str]) -> tuple[Fragment, ...]:
    """Returns the fragments of all kinds of layer, and those that an architecture or the caller leaves out."""
    kinds = [(file, kind) for file in lineage for kind in file.data.kinds.values()]
    names = [(name, file.path) for file in lineage for name in file.data.without]
    names += [(name, file.path) for file, kind in kinds for name in kind.fragments]
    names += [(name, PACKAGE_FILE) for name in without]
    return tuple(library.fragment(name, path) for name, path in names)


def _collect_fields(fragments: Iterable[Fragment]) -> set[str]:
    """Returns the config fields of some fragments."""
    return {member.name for fragment in fragments for member in fragment.fields if member.is_field}


def _merge_presets(lineage: Lineage, target: Toml[TargetToml], left_out: set[str]) -> Presets:
    """Returns the presets of the architecture and its bases, overridden by those that the target has too.

    Args:
        left_out: fields that are ignored in presets of bases and of the target.
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
