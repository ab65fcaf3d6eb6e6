"""Merges the fields of the selected fragments into a dataclass for each concern and one of all; writes presets."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from generator.code.caching import cached
from generator.code.concrete import indent
from generator.code.literals import literal
from generator.code.traced import Origin, Traced, line_starts
from generator.code.tree import FUNCTIONS, parse
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Field
from generator.recipe.recipe import Recipe
from generator.recipe.recipes import HardwareRecipe, Recipes, read_chips
from generator.recipe.typed import check_value
from generator.weave.fill import fill


def merge_fields(recipe: Recipe) -> list[Field]:
    """Returns the members of `Config` in order of selection, with settings filled and defaults checked."""
    fields: dict[str, Field] = {}
    for fragment in recipe.fragments:
        for member in fragment.fields:
            if member.name in fields:
                first = fields[member.name]
                raise LoomError(
                    f"{fragment.name} and {first.fragment} ({_locate(first)}) both give Config a field {member.name}",
                    _locate(member),
                    "Select one of them, or give one field another name.",
                )
            member = replace(member, text=fill(member.text, recipe.settings))
            if isinstance(member.statement, ast.AnnAssign) and member.statement.value is not None:
                with suppress(ValueError, TypeError, SyntaxError):  # an expression, which Python evaluates
                    check_value(member, ast.literal_eval(member.statement.value), _locate(member))
            fields[member.name] = member
    return list(fields.values())


def check_fields(
    definitions: Iterable[Definition], fields: list[Field], all_fragments: Callable[[], Iterable[Fragment]]
) -> None:
    """Refuses a definition that reads a member which Config does not have.

    Args:
        definitions: woven; a member is read as `config.NAME` or `….config.NAME`.
        fields: the members of the selected fragments.
        all_fragments: returns every fragment, selected or not, for suggestions.
    """
    known = {member.name: member for member in fields}
    concerns = {member.concern for member in fields}
    for definition in definitions:
        for name, line, concern in _read_members(definition.text.text):
            origin = definition.text.origin_at(line_starts(definition.text.text)[line - 1])
            if name in known and concern not in ("Config", known[name].concern) and concern in concerns:
                message = f"{definition.fragment} reads config.{name} of {concern}, and it is in {known[name].concern}"
                raise LoomError(message, str(origin), "Annotate the parameter with Config, or move the field.")
            if name not in known:
                candidates = [f for f in all_fragments() if any(m.name == name for m in f.fields)]
                listed = ", ".join(f"{fragment.name} ({fragment.path})" for fragment in candidates)
                remedy = f"Select a fragment that gives it: {listed}." if candidates else nearest(name, known)
                message = f"{definition.fragment} reads config.{name}, which no selected fragment gives"
                raise LoomError(message, str(origin), remedy, candidates=[fragment.name for fragment in candidates])


@cached
def _read_members(text: str) -> tuple[tuple[str, int, str], ...]:
    """Returns the members of `config` that a definition reads, the line of each, and the annotation of `config`."""
    members = []

    def visit(node: ast.AST, annotation: str) -> None:
        if isinstance(node, FUNCTIONS):
            own = [x for x in (*node.args.args, *node.args.kwonlyargs) if x.arg == "config"]
            annotation = getattr(own[0].annotation, "id", "") if own else annotation
        if isinstance(node, ast.Attribute) and _is_config(node.value):
            members.append((node.attr, node.lineno, annotation if isinstance(node.value, ast.Name) else ""))
        for child in ast.iter_child_nodes(node):
            visit(child, annotation)

    if "config." in text:
        visit(parse(text).module, "")
    return tuple(members)


def _is_config(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "config" and getattr(node.value, "id", "") != "jax"  # jax.config is JAX's own
    return isinstance(node, ast.Name) and node.id == "config"


def _locate(member: Field) -> str:
    """Returns `path:line` of a member, below its comments."""
    return str(next(line for line in member.text.lines() if not line.text.strip().startswith("#")).origin_at(0))


def write_values(recipe: Recipe, fields: list[Field], chip: Definition | None) -> dict[str, Traced]:
    """Returns what config.py may define, by name.

    Args:
        chip: the class `Chip`, if the package has it.
    """
    return {
        "ARCHITECTURE": write_architecture(recipe),
        **write_config(recipe, fields),
        "PRESETS": write_presets(recipe, fields),
        **({"CHIPS": write_chips(recipe, chip)} if chip else {}),
        "HARDWARE": write_hardware(recipe.recipes),
        "RECIPES": write_recipes(recipe, fields),
    }


def write_config(recipe: Recipe, fields: list[Field]) -> dict[str, Traced]:
    """Returns a class for each concern, with its fields, and `class Config`, which inherits them."""
    concerns: dict[str, list[Field]] = {}
    for member in fields:
        concerns.setdefault(member.concern, []).append(member)
    own = concerns.pop("Config", [])
    classes = {}
    for name, members in concerns.items():
        texts = [text for fragment in recipe.fragments for text in fragment.concerns if text.name == name]
        if len(texts) != 1:
            others = ", ".join(sorted({text.fragment for text in texts})) or "no selected fragment"
            message = f"{name} needs one docstring, and {others} {'give' if len(texts) > 1 else 'gives'} it"
            raise LoomError(message, _locate(members[0]), "Say in one fragment what this class of settings is.")
        classes[name] = _write_class(name, indent(texts[0].text, 4), members)
    origin = recipe.package_file.origin("config", "documentation")
    documentation = Traced.insert(f'    """{recipe.package_file.data.config.documentation}"""\n', origin)
    head = f"Config({', '.join(concerns)})" if concerns else "Config"
    return {**classes, "Config": _write_class(head, documentation, own)}


def _write_class(head: str, documentation: Traced, members: list[Field]) -> Traced:
    """Returns a dataclass, its fields above its properties."""
    opening = f"@dataclasses.dataclass(frozen=True, kw_only=True)\nclass {head}:\n"
    origin = documentation.origin_at(0)
    parts = [Traced.insert(opening, origin), documentation, Traced.insert("\n", origin)]
    parts += [indent(member.text, 4) for member in members if member.is_field]
    for member in members:
        if not member.is_field:
            parts += [Traced.insert("\n", member.text.origin_at(0)), indent(member.text, 4)]
    return Traced.join(parts)


def write_architecture(recipe: Recipe) -> Traced:
    """Returns `ARCHITECTURE = "llama2"`, by which code refuses checkpoints of another architecture."""
    text = f"ARCHITECTURE = {literal(recipe.architecture, '')}  # checkpoints of another one are refused\n"
    return Traced.insert(text, Origin(recipe.architecture_file.path, 1))


def write_presets(recipe: Recipe, fields: list[Field]) -> Traced:
    """Returns `PRESETS = {"7b": Config(...), ...}`."""
    by_name = {member.name: member for member in fields if member.is_field}
    names = list(by_name)
    required = [member.name for member in fields if member.is_required]
    head = Origin(recipe.architecture_file.path, 1)
    parts = [Traced.insert("PRESETS = {\n", head)]
    for preset, values in recipe.presets.items():
        origin = recipe.architecture_file.origin("presets", preset)
        for name, (value, line) in values.items():
            if name not in names and isinstance(value, dict):
                message = f"the preset {preset!r} holds a table {name!r}, and a preset holds fields"
                remedy = f'If the preset is called {preset}.{name}, write [presets."{preset}.{name}"].'
                raise LoomError(message, str(line), remedy)
            if name not in names:
                raise LoomError(f"no selected fragment has the field {name!r}", str(line), nearest(name, names))
        missing = [name for name in required if name not in values]
        if missing:
            remedy = f"Add {', '.join(missing)} to this preset."
            raise LoomError(f"the preset {preset!r} leaves out {', '.join(missing)}", str(origin), remedy)
        parts.append(Traced.insert(f'"{preset}": Config(\n', origin))
        for name, (value, line) in sorted(values.items(), key=lambda item: names.index(item[0])):
            parts.append(Traced.insert(f"{name}={literal(value, str(line))},\n", line))
            check_value(by_name[name], value, str(line))
        parts.append(Traced.insert("),\n", origin))
    parts.append(Traced.insert("}\n", head))
    return Traced.join(parts)


def write_chips(recipe: Recipe, chip: Definition) -> Traced:
    """Returns `CHIPS = {"v5p": Chip(kinds=("TPU v5", "TPU v5p"), peak=459e12), ...}`, with the fields that Chip has."""
    head = recipe.target_file.origin("settings", "chips")
    parts = [Traced.insert("CHIPS = {\n", head)]
    nodes = ast.walk(parse(chip.text.text).module)
    columns = [ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)]
    for name, row in read_chips(recipe.target_file).items():
        where = recipe.target_file.origin("settings", "chips", name)
        if missing := [column for column in columns if column not in row]:
            raise LoomError(f"the chip {name} has no {', '.join(missing)}", str(where), "Add what Chip holds.")
        values = [tuple(row[column]) if isinstance(row[column], list) else row[column] for column in columns]
        pairs = zip(columns, values, strict=True)
        text = ", ".join(f"{column}={literal(value, str(where))}" for column, value in pairs)
        parts.append(Traced.insert(f'"{name}": Chip({text}),\n', where))
    return Traced.join([*parts, Traced.insert("}\n", head)])


def write_hardware(recipes: Recipes) -> Traced:
    """Returns `HARDWARE = {"v5p-512": Hardware(256, "v5p:8x8x4"), ...}`."""
    parts = [Traced.insert("HARDWARE = {\n", Origin(recipes.path, 1))]
    for name, table in recipes.hardware.items():
        text = f'"{name}": Hardware({table.devices}, "{table.topology}"{_flags(table.flags)}),\n'
        parts.append(Traced.insert(text, table.origin()))
    return Traced.join([*parts, Traced.insert("}\n", Origin(recipes.path, 1))])


def _flags(flags: tuple[str, ...]) -> str:
    return f", flags={literal(' '.join(flags), '')}" if flags else ""


def write_recipes(recipe: Recipe, fields: list[Field]) -> Traced:
    """Returns `RECIPES = {("7b", "v5p-512"): Recipe({"batch_size": 1024}), ...}`."""
    recipes = recipe.recipes
    by_name = {member.name: member for member in fields if member.is_field}
    head = "# by preset and hardware; memory of a device and predicted time of a step\n"
    parts = [Traced.insert(f"{head}RECIPES = {{\n", Origin(recipes.path, 1))]
    for row in recipes.rows:
        for name, (value, line) in row.settings.items():
            if name not in by_name:
                raise LoomError(f"no selected fragment has the field {name!r}", str(line), nearest(name, by_name))
            check_value(by_name[name], value, str(line))
        _check_mesh(row, {name: value for name, (value, _) in recipe.presets[row.preset].items()}, by_name, recipes)
        values: dict[str, object] = {name: value for name, (value, _) in row.settings.items()}
        origin = row.table.origin()
        text = f'("{row.preset}", "{row.hardware}"): Recipe({literal(values, str(origin))}{_flags(row.table.flags)})'
        parts.append(Traced.insert(f"{text},  # {row.table.figures}\n", origin))
    return Traced.join([*parts, Traced.insert("}\n", Origin(recipes.path, 1))])


def _default(member: Field) -> object:
    """Returns the default of a field, None where it is not a literal."""
    with suppress(ValueError, TypeError, SyntaxError, AttributeError):
        return ast.literal_eval(member.statement.value)  # type: ignore[attr-defined]
    return None


def _check_mesh(row: HardwareRecipe, preset: dict[str, object], fields: dict[str, Field], recipes: Recipes) -> None:
    """Refuses axes of the mesh whose sizes do not make the devices of the hardware."""
    settings = {name: value for name, (value, _) in row.settings.items()}
    axes = [name for name in fields if name.startswith("mesh_")]
    sizes = {name: (preset | settings).get(name, _default(fields[name])) for name in axes}
    numbers = [size for size in sizes.values() if isinstance(size, int)]
    given, devices = math.prod(size for size in numbers if size != -1), recipes.hardware[row.hardware].devices
    if numbers.count(-1) > 1 or not given or devices % given or (numbers and -1 not in numbers and given != devices):
        where = next((line for name, (_, line) in row.settings.items() if name in axes), row.table.origin("hardware"))
        said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        message = f"{row.preset} on {row.hardware}: {said} do not make {devices} devices"
        raise LoomError(message, str(where), "Give others; one of them may be -1, which takes the devices left.")


def describe_fields(fields: list[Field]) -> list[dict[str, str]]:
    """Returns the name, type, default and meaning of each field, for tables in documents."""
    rows = []
    for member in fields:
        if isinstance(statement := member.statement, ast.AnnAssign):
            lines = [line.strip() for line in member.text.text.splitlines()]
            above = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
            meaning = lines[-1].partition("  # ")[2] or above
            default = ast.unparse(statement.value) if statement.value is not None else ""
            rows.append({"name": member.name, "type": member.kind, "default": default, "meaning": meaning})
    return rows
