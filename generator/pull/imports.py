"""Adds the imports and parameters that a changed fragment needs, and removes unused imports."""

from __future__ import annotations

import ast

from generator.code.arguments import add_parameters
from generator.code.edits import Edits
from generator.code.ruff import lint_names, tidy_imports
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, is_docstring

ROLES = "from generator.language.roles import"
_NOWHERE = Origin("", 1)  # a fragment that is being written has no origins


def import_statements(texts: list[str]) -> dict[str, str]:
    """Returns, for each name that modules of a package import or define, the import that a fragment needs for it."""
    result: dict[str, str] = {}
    for node in (node for text in texts for node in _parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                result.setdefault(alias.asname or alias.name.split(".")[0], ast.unparse(ast.Import([alias])))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                outside = ast.unparse(ast.ImportFrom(node.module, [alias], 0))
                result.setdefault(name, f"{ROLES} {name}" if node.level else outside)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            result.setdefault(node.name, f"{ROLES} {node.name}")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            result.setdefault(node.targets[0].id, f"{ROLES} {node.targets[0].id}")
    return result


def _parse(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []


def complete_imports(before: str, after: str, statements: dict[str, str]) -> str:
    """Adds imports and parameters of splices for new names of a fragment; removes imports that became unused.

    Args:
        before, after: the fragment without and with a change.
        statements: name -> import, as of `import_statements`.
    """
    if names_in_text(before) == names_in_text(after):
        return after
    old, new = lint_names(before), lint_names(after)
    missing, unused = new["undefined"] - old["undefined"], new["unused"] - old["unused"]
    added = [statements[name] for name in sorted(missing) if name in statements]
    if added:
        after = _add_imports(after, added)
    if added or unused:
        after = tidy_imports(after, unused=bool(unused) and not old["unused"])
    for name in sorted(missing - statements.keys()):
        after = _add_parameter(after, name)
    return after


def names_in_text(text: str) -> set[str] | None:
    """Returns the names that a text reads or binds; None if it is not valid Python."""
    try:
        return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        return None


def _add_imports(text: str, imports: list[str]) -> str:
    """Writes imports above the existing ones, or else below the docstring."""
    edits = _edits(text)
    body, new = edits.source.statements, [edits.statement(line, _NOWHERE) for line in imports]
    first = next((node for node in body if isinstance(node, ast.Import | ast.ImportFrom)), None)
    if first:
        edits.put_above(first, new)
    elif body and is_docstring(body[0]):
        edits.put_below(body[0], new)
    else:
        edits.put_above(body[0], new)
    return edits.made().text


def _add_parameter(text: str, name: str) -> str:
    """Makes a name a parameter of each splice that reads it and does not bind it."""
    edits = _edits(text)
    for node in edits.source.statements:
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list or node.args.kwonlyargs:
            continue
        names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
        bound = {part.id for part in names if isinstance(part.ctx, ast.Store)}
        free = {part.id for part in names} - bound - {parameter.arg for parameter in node.args.args}
        if name in free:
            add_parameters(edits, edits.find(node), [(name, _NOWHERE)], [])
    return edits.made().text


def _edits(text: str) -> Edits:
    return Edits(TracedTree(Traced.insert(text, _NOWHERE)))
