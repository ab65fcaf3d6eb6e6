"""Merges the config fields of the selected fragments into one dataclass, and writes its presets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace

from generator.code.caching import cached
from generator.code.literals import literal
from generator.code.traced import Origin, Traced, line_starts
from generator.code.tree import module_of, reindent
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Field
from generator.recipe.recipe import Recipe
from generator.recipe.typed import check_value
from generator.weave.fill import fill


def merge_fields(recipe: Recipe) -> list[Field]:
    """Returns the members of `Config` in order of selection, their settings filled."""
    fields: dict[str, Field] = {}
    for fragment in recipe.fragments:
        for member in fragment.fields:
            if member.name in fields:
                first = fields[member.name]
                raise LoomError(
                    f"{fragment.name} and {first.fragment} ({_line(first)}) both give Config a field {member.name}",
                    _line(member),
                    "Select one of them, or give one field another name.",
                )
            fields[member.name] = replace(member, text=fill(member.text, recipe.settings))
            _check_default(fields[member.name])
    return list(fields.values())


def _check_default(member: Field) -> None:
    statement = member.statement
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        try:
            default = ast.literal_eval(statement.value)
        except (ValueError, TypeError, SyntaxError):
            return  # an expression, which Python evaluates
        check_value(member, default, _line(member))


def check_fields(
    definitions: Iterable[Definition], fields: list[Field], others: Callable[[], Iterable[Fragment]]
) -> None:
    """Refuses a definition that reads a member which Config does not have.

    Args:
        definitions: woven; a member is read as `config.NAME` or `….config.NAME`.
        fields: the members of the selected fragments.
        others: every fragment there is, for suggestions.
    """
    known = {member.name for member in fields}
    for definition in definitions:
        for name, line in _read_members(definition.text.text):
            if name not in known:
                origin = definition.text.origin_at(line_starts(definition.text.text)[line - 1])
                could = [f for f in others() if any(m.name == name for m in f.fields)]
                shown = ", ".join(f"{fragment.name} ({fragment.path})" for fragment in could)
                remedy = f"Select a fragment that gives it: {shown}." if could else nearest(name, known)
                message = f"{definition.fragment} reads config.{name}, which no selected fragment gives"
                raise LoomError(message, str(origin), remedy, candidates=[fragment.name for fragment in could])


@cached
def _read_members(text: str) -> tuple[tuple[str, int], ...]:
    """Returns the members of `config` that a definition reads, each with its line."""
    nodes = ast.walk(module_of(text)) if "config." in text else ()
    return tuple(
        (node.attr, node.lineno) for node in nodes if isinstance(node, ast.Attribute) and _is_config(node.value)
    )


def _is_config(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "config" and getattr(node.value, "id", "") != "jax"  # jax.config is JAX's own
    return isinstance(node, ast.Name) and node.id == "config"


def _line(member: Field) -> str:
    """Returns the line of the field itself, below its comments."""
    offset = 0
    for line in member.text.lines():
        if not line.text.strip().startswith("#"):
            break
        offset += len(line.text)
    return str(member.text.origin_at(offset))


def config_class(recipe: Recipe, fields: list[Field]) -> Traced:
    """Writes `class Config`, grouped by the folders of the fragments."""
    table = recipe.package_file.data.config
    origin = recipe.package_file.origin("config", "documentation")
    head = f'@dataclasses.dataclass(frozen=True, kw_only=True)\nclass Config:\n    """{table.documentation}"""\n'
    parts = [Traced.insert(head, origin)]
    by_name = {fragment.name: fragment for fragment in recipe.fragments}
    groups: dict[str, list[Field]] = {}
    for member in fields:
        if member.is_field:
            groups.setdefault(_group(by_name[member.fragment], table.groups), []).append(member)
    for group, members in groups.items():
        parts.append(Traced.insert(f"\n    # {group}\n", members[0].text.origin_at(0)))
        parts += [reindent(member.text, 4) for member in members]
    for member in fields:
        if not member.is_field:
            parts.append(Traced.insert("\n", member.text.origin_at(0)))
            parts.append(reindent(member.text, 4))
    return Traced.join(parts)


def _group(fragment: Fragment, groups: dict[str, str]) -> str:
    return groups.get(fragment.folder, fragment.folder)


def architecture_value(recipe: Recipe) -> Traced:
    """Writes `ARCHITECTURE = "llama2"`, for code that must tell the checkpoints of one architecture from another's."""
    text = f"ARCHITECTURE = {literal(recipe.architecture, '')}  # checkpoints of another one are refused\n"
    return Traced.insert(text, Origin(recipe.architecture_file.path, 1))


def presets_value(recipe: Recipe, fields: list[Field]) -> Traced:
    """Writes `PRESETS = {"7b": Config(...), ...}`."""
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
        ordered = sorted(values.items(), key=lambda item: names.index(item[0]))
        for name, (value, line) in ordered:
            parts.append(Traced.insert(f"{name}={literal(value, str(line))},\n", line))
            check_value(by_name[name], value, str(line))
        parts.append(Traced.insert("),\n", origin))
    parts.append(Traced.insert("}\n", head))
    return Traced.join(parts)


def described_fields(fields: list[Field]) -> list[dict[str, str]]:
    """Returns name, type, default and meaning of each field, for tables in documents."""
    rows = []
    for member in fields:
        statement = member.statement
        if isinstance(statement, ast.AnnAssign):
            lines = [line.strip() for line in member.text.text.splitlines()]
            above = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
            last = lines[-1].partition("  # ")[2]
            default = ast.unparse(statement.value) if statement.value is not None else ""
            kind = ast.unparse(statement.annotation)
            rows.append({"name": member.name, "type": kind, "default": default, "meaning": last or above})
    return rows
