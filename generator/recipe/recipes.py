"""Reads the recipes of a target: what a preset takes on some hardware."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.schema import ArchitectureToml, HardwareTable, RecipesToml, RecipeTable, TargetToml
from generator.recipe.toml import Toml

_DEVICES_OF_CHIP = {"tpu7x": 2}  # that JAX counts; chips of other names have one


@dataclass(frozen=True)
class HardwareRecipe:
    """A row of `RECIPES`.

    Attributes:
        settings: field of Config -> value, and the line that gives it.
    """

    preset: str
    hardware: str
    table: RecipeTable
    settings: dict[str, tuple[object, Origin]]


@dataclass(frozen=True)
class Recipes:
    """The recipes of a package, sorted by preset and hardware, and the hardware that they are for.

    Attributes:
        path: their file, or that of the target if it has none.
    """

    path: str
    hardware: dict[str, HardwareTable]
    rows: tuple[HardwareRecipe, ...]


def read_chips(file: Toml[TargetToml]) -> dict[str, dict[str, Any]]:
    """Returns `[settings.chips]` of a target: what is known of each kind of device, by name."""
    chips = file.data.settings.get("chips", {})
    if not isinstance(chips, dict) or not all(isinstance(row, dict) for row in chips.values()):
        where = str(file.origin("settings", "chips"))
        raise LoomError("chips is no table of tables", where, "Write [settings.chips.NAME] for each kind of device.")
    return chips


def read_recipes(
    library: Library,
    target: str,
    architecture: str,
    presets: Collection[str],
    parts: Collection[str],
    all_parts: Collection[str],
    chips: Collection[str],
) -> Recipes:
    """Returns the recipes of a target, whose chips have these names, for the presets of an architecture."""
    path = f"targets/{target}/recipes.toml"
    if path not in library.files:
        return Recipes(f"targets/{target}/target.toml", {}, ())
    file = Toml.read(library.files, path, RecipesToml)
    _check_hardware(file, chips)
    found: dict[tuple[str, str], tuple[RecipeTable, Origin]] = {}
    for row in file.data.recipe:
        _check_names(row, "hardware", [row.hardware], file.data.hardware)
        _check_names(row, "architectures", row.architectures, library.architectures())
        _check_names(row, "parts", row.parts, all_parts)
        if (row.architectures and architecture not in row.architectures) or not set(row.parts) <= set(parts):
            continue
        for at, preset in enumerate(row.presets):
            where = row.origin("presets", at)
            known = presets if row.architectures else _all_presets(library)
            if preset not in known:
                owner = f"{architecture} has no" if row.architectures else "no architecture has the"
                message = f"{owner} preset {preset!r}"
                raise LoomError(message, str(where), nearest(preset, known))
            other, line = found.get((preset, row.hardware), (row, where))
            if other is not row and _rank(other) == _rank(row):
                message = f"a second recipe for {preset} on {row.hardware}: the first is at {line}"
                raise LoomError(message, str(where), "Remove one, or name the architectures that it is for.")
            if _rank(row) >= _rank(other):
                found[preset, row.hardware] = row, where
    pairs = [(p, h) for p in presets for h in file.data.hardware if (p, h) in found]
    rows = tuple(HardwareRecipe(p, h, found[p, h][0], _settings(found[p, h][0])) for p, h in pairs)
    used = {row.hardware for row in rows}
    return Recipes(path, {name: table for name, table in file.data.hardware.items() if name in used}, rows)


def _rank(row: RecipeTable) -> tuple[bool, int]:
    """Returns what makes one recipe win over another: it names the architecture, and needs more parts."""
    return bool(row.architectures), len(row.parts)


def _all_presets(library: Library) -> set[str]:
    paths = (f"templates/architectures/{name}.toml" for name in library.architectures())
    return {preset for path in paths for preset in Toml.read(library.files, path, ArchitectureToml).data.presets}


def _check_hardware(file: Toml[RecipesToml], chips: Collection[str]) -> None:
    for name, table in file.data.hardware.items():
        if not 1 <= table.devices <= 10**6:
            where = str(table.origin("devices"))
            raise LoomError(f"{name} has {table.devices} devices", where, "Give a number from 1 to 1,000,000.")
        chip, _, shape = table.topology.partition(":")  # such as v5p:8x8x4
        if chip not in chips:
            raise LoomError(f"{name}: unknown chip {chip!r}", str(table.origin("topology")), nearest(chip, chips))
        count = math.prod(map(int, re.findall(r"\d+", shape))) * _DEVICES_OF_CHIP.get(chip, 1)
        if shape and count != table.devices:
            message = f"{name} has {table.devices} devices, and {table.topology} {count}"
            raise LoomError(message, str(table.origin("devices")), "Correct one of them.")
    entries: list[HardwareTable | RecipeTable] = [*file.data.hardware.values(), *file.data.recipe]
    for entry in entries:
        for number, flag in enumerate(entry.flags):
            if not re.fullmatch(r"--\S+", flag):
                where = str(entry.origin("flags", number))
                raise LoomError(f"{flag!r} is no flag", where, "Give one flag: --NAME=VALUE, without spaces.")


def _check_names(row: RecipeTable, key: str, names: Collection[str], known: Collection[str]) -> None:
    for number, name in enumerate(names):
        if name not in known:
            where = str(row.origin(key, number) if key.endswith("s") else row.origin(key))
            raise LoomError(f"unknown {key.removesuffix('s')} {name!r}", where, nearest(name, known))


def _settings(row: RecipeTable) -> dict[str, tuple[object, Origin]]:
    return {
        name: (tuple(value) if isinstance(value, list) else value, row.origin("settings", name))
        for name, value in row.settings.items()
    }
