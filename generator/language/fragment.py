"""Parses one fragment: a Python module that holds one feature."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.code.traced import Traced
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


def parse_fragment(path: str, text: str) -> Fragment:
    """Reads a fragment.

    Args:
        path: `fragments/FOLDER/NAME.py`.
        text: what the file holds.

    Raises:
        LoomError: the text is not Python, or holds a top-level statement that a fragment cannot have.
    """
    name = path.removeprefix("fragments/").removesuffix(".py")
    check_python(text, path)
    if not text.endswith("\n"):  # statements are copied by whole lines
        text += "\n"
    source = Source(Traced.copy(text, path))
    check_style(source)
    parts = _Parts()
    for statement in source.module.body:
        _read(statement, source, name, parts)
    title, citation = _docstring(source.module)
    return Fragment(
        name=name,
        path=path,
        title=title,
        citation=citation,
        imports=parts.imports,
        definitions=tuple(parts.definitions),
        fields=tuple(parts.fields),
        splices=tuple(parts.splices),
        providers=tuple(parts.providers),
        requires=tuple(parts.requires),
        excludes=tuple(parts.excludes),
        further_layers=tuple(parts.further_layers),
        alike=tuple(parts.alike),
    )


def _docstring(module: cst.Module) -> tuple[str, str]:
    text = inspect.cleandoc(module.get_docstring() or "")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    citations = [p.removeprefix("Source:").strip() for p in paragraphs if p.startswith("Source:")]
    return paragraphs[0].rstrip("."), "; ".join(citations).rstrip(".")


def _read(statement: cst.BaseStatement, source: Source, fragment: str, parts: _Parts) -> None:
    small = syntax.simple(statement)
    call = syntax.expression(statement)
    if syntax.is_docstring(statement):
        return
    if isinstance(small, (cst.Import, cst.ImportFrom)):
        _read_import(statement, source, parts)
    elif syntax.called(call) in _DECLARATIONS:
        _read_declaration(cst.ensure_type(call, cst.Call), source, parts)
    elif isinstance(statement, cst.FunctionDef) and mark(statement, "splice"):
        parts.splices += read_splices(statement, source, fragment)
    elif isinstance(statement, cst.FunctionDef) and mark(statement, "provide"):
        parts.providers.append(read_provider(statement, source, fragment))
    elif isinstance(statement, cst.ClassDef) and statement.name.value == "Config":
        parts.fields += _read_fields(statement, source, fragment)
    else:
        name = _defined(statement, small)
        if not name:
            raise LoomError(
                "a fragment holds imports, functions, classes, values, splices and providers, and nothing else",
                source.where(statement),
                "Move this statement into a function.",
            )
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            check_decorators(statement, source, woven=False)
        start, end = source.lines(statement)
        parts.definitions.append(Definition(name, source.traced[start:end], fragment))


def _read_declaration(call: cst.Call, source: Source, parts: _Parts) -> None:
    """Names of fragments, or a pair of strings."""
    word = syntax.called(call)
    part, takes, example = _DECLARATIONS[word]
    values = [literal_of(argument, source) for argument in call.args if not argument.keyword and not argument.star]
    strings = tuple(value for value in values if isinstance(value, str))
    if len(strings) < len(call.args) or (takes is _PAIR and len(strings) != 2):
        raise LoomError(f"{word} takes {takes}", source.where(call), f"Write {word}({example}).")
    getattr(parts, part).extend([strings] if takes is _PAIR else strings)


def _defined(statement: cst.BaseStatement, small: cst.BaseSmallStatement | None) -> str:
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return statement.name.value
    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
        return small.target.value
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        return small.targets[0].target.value
    if isinstance(statement, cst.If) and any(
        isinstance(node, cst.Name) and node.value == "__name__" for node in syntax.walk(statement.test)
    ):
        return "__main__"
    return ""


def _read_import(statement: cst.BaseStatement, source: Source, parts: _Parts) -> None:
    """The weaver's own words, roles and other fragments are linked by name and leave no import behind."""
    start, end = source.span(statement)
    origin = source.traced.origin_at(start)
    (node,) = ast.parse(source.text[start:end]).body
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
    elif isinstance(node, ast.Import):
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            # `import a.b` binds a; two of them are two lines under one name, so the key is the module
            parts.imports[alias.asname or alias.name] = Import(alias.name, "", bound, origin)


def _read_fields(config: cst.ClassDef, source: Source, fragment: str) -> list[Field]:
    fields = []
    for statement in syntax.body(config):
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
