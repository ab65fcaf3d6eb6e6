"""Parses one fragment: a Python module that holds one feature."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.syntax import Source
from generator.code.traced import Origin, Traced, line_starts
from generator.errors import LoomError
from generator.language.grammar import check_decorators, check_python, check_style
from generator.language.marked import literal_of, mark, read_provider, read_splices
from generator.language.parts import Definition, Field, Import, Provider, Splice

_NAMES, _PAIR = "names of fragments", "two strings"
_DECLARATIONS = {  # of each its part of a fragment, what it takes, and an example
    "requires": ("requires", _NAMES, '"rope", ...'),
    "excludes": ("excludes", _NAMES, '"rope", ...'),
    "layers.further": ("further_layers", _PAIR, '"STACK", "COUNT"'),
    "alike": ("alike", _PAIR, '"FUNCTION", "SITE"'),
}


@dataclass(frozen=True)
class Fragment:
    """One feature.

    Attributes:
        name: path below fragments/ without `.py`: `model/rope`.
        title, citation: the first line of the docstring, and what follows `Source:` in it.
        further_layers: of layers after the last, the path of their stack and how many there are.
        alike: functions in which is provided what is provided at another site, and that site.
    """

    name: str
    path: str
    title: str
    citation: str
    imports: dict[str, Import]
    definitions: tuple[Definition, ...]
    fields: tuple[Field, ...]
    splices: tuple[Splice, ...]
    providers: tuple[Provider, ...]
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    further_layers: tuple[tuple[str, ...], ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()

    @property
    def folder(self) -> str:
        return self.name.split("/")[0]

    @property
    def short(self) -> str:
        """The name without its folder, as `before`, `after` and `requires` give it."""
        return self.name.split("/")[-1]


@dataclass
class _Parts:
    """What has been read of a fragment so far."""

    imports: dict[str, Import] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    splices: list[Splice] = field(default_factory=list)
    providers: list[Provider] = field(default_factory=list)
    requires: list[str] = field(default_factory=list)
    excludes: list[str] = field(default_factory=list)
    further_layers: list[tuple[str, ...]] = field(default_factory=list)
    alike: list[tuple[str, ...]] = field(default_factory=list)


@remembered
def parse_fragment(path: str, text: str) -> Fragment:
    """Reads a fragment.

    Args:
        path: `fragments/FOLDER/NAME.py`.
        text: what the file holds.
    """
    name = path.removeprefix("fragments/").removesuffix(".py")
    module = check_python(text, path)
    try:
        return _parse(name, path, text, module)
    except RecursionError:
        raise LoomError(
            "nested too deeply", f"{path}:1", "Write it flatter: a table or a loop for many branches."
        ) from None


def _parse(name: str, path: str, text: str, module: ast.Module) -> Fragment:
    if not text.endswith("\n"):  # statements are copied by whole lines
        text += "\n"
    traced, parts = Traced.copy(text, path), _Parts()
    check_style(traced, module)
    _check_roles(module, path, text)
    for statement, lines in _statements(traced, module):
        _read(statement, lines, name, parts)
    title, citation = _docstring(module)
    found: dict[str, Any] = {key: value if key == "imports" else tuple(value) for key, value in vars(parts).items()}
    return Fragment(name=name, path=path, title=title, citation=citation, **found)


def _check_roles(module: ast.Module, path: str, text: str) -> None:
    """Refuses a role that is imported and not used: one of the two is misspelt, and the weaver links what is used."""
    words = Counter(re.findall(r"\w+", text))
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module == "generator.language.roles":
            for alias in node.names:
                if words[alias.name] == 1:
                    message = f"imports {alias.name} and does not use it"
                    raise LoomError(message, f"{path}:{alias.lineno}", "Take it out, or spell it as it is used.")


def _statements(text: Traced, module: ast.Module) -> Iterator[tuple[ast.stmt, Traced]]:
    """The statements of a fragment, each with its lines, its decorators and the comments right above it."""
    starts, end = line_starts(text.text), 0
    for node in module.body:
        first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ()))) - 1
        if first < end:  # behind a semicolon
            raise _unreadable(text.origin_at(starts[first]))
        while first and text.text[starts[first - 1] : starts[first]].strip().startswith("#"):
            first -= 1
        end = node.end_lineno or 0
        yield node, text[starts[first] : starts[end]]


def _docstring(module: ast.Module) -> tuple[str, str]:
    text = inspect.cleandoc(ast.get_docstring(module) or "")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    citations = [p.removeprefix("Source:").strip() for p in paragraphs if p.startswith("Source:")]
    return paragraphs[0].rstrip("."), "; ".join(citations).rstrip(".")


def _read(node: ast.stmt, text: Traced, fragment: str, parts: _Parts) -> None:
    """Reads a statement; a definition is taken as it stands, and libcst reads it where it is woven."""
    value, origin = node.value if isinstance(node, ast.Expr) else None, Origin(text.origin_at(0).path, node.lineno)
    if isinstance(value, ast.Constant) and isinstance(value.value, (str, bytes)):
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        _read_import(node, origin, parts)
    elif isinstance(value, ast.Call) and ast.unparse(value.func) in _DECLARATIONS:
        source = Source(text)
        _read_declaration(cst.ensure_type(syntax.expression(source.module.body[0]), cst.Call), source, parts)
    elif getattr(node, "decorator_list", ()) and _read_marked(Source(text), fragment, parts):
        return
    elif isinstance(node, ast.ClassDef) and node.name == "Config":
        parts.fields += _read_fields(Source(text), fragment)
    elif name := _defined(node):
        parts.definitions.append(Definition(name, text, fragment))
    else:
        raise _unreadable(origin)


def _read_marked(source: Source, fragment: str, parts: _Parts) -> bool:
    """Reads a splice or a provider, which their decorators mark; other decorators are the definition's own."""
    (function,) = source.module.body
    if isinstance(function, cst.FunctionDef) and mark(function, "splice"):
        parts.splices += read_splices(function, source, fragment)
    elif isinstance(function, cst.FunctionDef) and mark(function, "provide"):
        parts.providers.append(read_provider(function, source, fragment))
    elif isinstance(function, (cst.FunctionDef, cst.ClassDef)):
        check_decorators(function, source, woven=False)
        return False
    return True


def _unreadable(where: Origin) -> LoomError:
    message = "a fragment holds imports, functions, classes, values, splices and providers, and nothing else"
    return LoomError(message, str(where), "Move this statement into a function.")


def _read_declaration(call: cst.Call, source: Source, parts: _Parts) -> None:
    """Names of fragments, or a pair of strings."""
    word = syntax.called(call)
    part, takes, example = _DECLARATIONS[word]
    values = [literal_of(argument, source) for argument in call.args if not argument.keyword and not argument.star]
    strings = tuple(value for value in values if isinstance(value, str))
    if len(strings) < len(call.args) or (takes is _PAIR and len(strings) != 2):
        raise LoomError(f"{word} takes {takes}", source.where(call), f"Write {word}({example}).")
    getattr(parts, part).extend([strings] if takes is _PAIR else strings)


def _defined(node: ast.stmt) -> str:
    """The name of what a statement defines, '' where it defines nothing."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    test = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return "__main__" if any(isinstance(part, ast.Name) and part.id == "__name__" for part in test) else ""


def _read_import(node: ast.Import | ast.ImportFrom, origin: Origin, parts: _Parts) -> None:
    """The weaver's own words, roles and other fragments are linked by name and leave no import behind."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            remedy = "Import the name with `from generator.language.roles import NAME`."
            raise LoomError("a relative import", str(origin), remedy)
        if module.split(".")[0] in ("fragments", "generator", "__future__"):
            return
        for alias in node.names:
            bound = alias.asname or alias.name
            parts.imports[bound] = Import(module, alias.name, bound, origin)
    else:
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            # `import a.b` binds a; two of them are two lines under one name, so the key is the module
            parts.imports[alias.asname or alias.name] = Import(alias.name, "", bound, origin)


def _read_fields(source: Source, fragment: str) -> list[Field]:
    fields = []
    for statement in syntax.body(source.module.body[0]):
        if syntax.is_docstring(statement):
            continue
        small = syntax.simple(statement)
        if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
            name = small.target.value
        elif isinstance(statement, cst.FunctionDef):
            name = statement.name.value
        else:
            remedy = "Write `name: type = default  # meaning, unit`, or a property."
            raise LoomError("Config holds annotated fields and properties", source.where(statement), remedy)
        start, end = source.lines(statement)
        fields.append(Field(name, source.traced[start:end], fragment))
    return fields
