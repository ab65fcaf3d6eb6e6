"""Imports and parameters that a changed fragment needs, or needs no longer."""

from __future__ import annotations

import ast

from generator.code.ruff import lint_names, tidy_imports

ROLES = "from generator.language.roles import"


def imports_of(texts: list[str]) -> dict[str, str]:
    """Finds the names that files of a package import or define: name -> the import that a fragment needs for it."""
    found: dict[str, str] = {}
    for node in (node for text in texts for node in _parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name.split(".")[0], ast.unparse(ast.Import([alias])))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                outside = ast.unparse(ast.ImportFrom(node.module, [alias], 0))
                found.setdefault(name, f"{ROLES} {name}" if node.level else outside)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, f"{ROLES} {node.name}")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, f"{ROLES} {node.targets[0].id}")
    return found


def _parse(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []


def completed(before: str, after: str, known: dict[str, str]) -> str:
    """Adds imports, and parameters of splices, for the names that a change brought; drops unused imports.

    Args:
        before: the fragment as it was.
        known: as `imports_of` gives it.
    """
    if names_of(before) == names_of(after):
        return after
    old, new = lint_names(before), lint_names(after)
    missing, unused = new["undefined"] - old["undefined"], new["unused"] - old["unused"]
    imports = [known[name] for name in sorted(missing) if name in known]
    if imports:
        after = _with_imports(after, imports)
    if imports or unused:
        after = tidy_imports(after, unused=bool(unused) and not old["unused"])
    for name in sorted(missing - known.keys()):
        after = _with_parameter(after, name)
    return after


def names_of(text: str) -> set[str] | None:
    """Finds all names that a text reads or binds; None where it is not Python."""
    try:
        return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        return None


def _with_imports(text: str, imports: list[str]) -> str:
    """Writes imports above those that are there, or else below the docstring."""
    body, lines = ast.parse(text).body, text.split("\n")
    first = next((node.lineno for node in body if isinstance(node, ast.Import | ast.ImportFrom)), 0)
    if first:
        return "\n".join([*lines[: first - 1], *imports, *lines[first - 1 :]])
    is_doc = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    end = (body[0].end_lineno or 0) if is_doc else 0
    return "\n".join([*lines[:end], "", *imports, "", *lines[end:]])


def _with_parameter(text: str, name: str) -> str:
    """Makes a name of the host a parameter of each splice that reads it."""
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list or node.args.kwonlyargs:
            continue
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        bound = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        head = lines[node.lineno - 1]
        if name in used - bound and name not in {arg.arg for arg in node.args.args} and head.endswith("):"):
            lines[node.lineno - 1] = f"{head[:-2]}{', ' if node.args.args else ''}{name}):"
    return "\n".join(lines)
