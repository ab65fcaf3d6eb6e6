"""Parses one fragment: a Python module that holds one feature."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field

import libcst as cst

from generator import syntax
from generator.errors import LoomError
from generator.syntax import Source
from generator.traced import Origin, Traced


@dataclass(frozen=True)
class Definition:
    """A top-level function, class or value. The block under `if __name__ == "__main__"` is called `__main__`."""

    name: str
    text: Traced  # whole lines, with the comments right above
    fragment: str


@dataclass(frozen=True)
class Field:
    """A member of `Config`: a field, a property or a method."""

    name: str
    text: Traced
    fragment: str


@dataclass(frozen=True)
class Import:
    """`import module`, `import module as alias` or `from module import name [as alias]`."""

    module: str
    name: str  # '' for a plain import
    alias: str  # the name that the import binds
    origin: Origin


@dataclass(frozen=True)
class Splice:
    """Statements for a join point."""

    point: str
    reads: tuple[str, ...]
    body: Traced  # whole lines, at the indentation that they have in the fragment
    before: tuple[str, ...]
    after: tuple[str, ...]
    optional: bool
    fragment: str
    origin: Origin


@dataclass(frozen=True)
class Provider:
    """Where a threaded value comes from."""

    value: str
    site: str
    reads: tuple[str, ...]
    body: Traced  # the statements before the return, possibly none
    result: Traced  # the returned expression, to the end of its line
    annotation: str  # of the value, '' where the fragment gives none
    optional: bool
    per_layer: bool
    fragment: str
    origin: Origin


@dataclass(frozen=True)
class Fragment:
    """One feature.

    Attributes:
        name: path below fragments/ without `.py`: `model/rope`.
        title, citation: the first line of the docstring, and what follows `Source:` in it.
        values: names and annotations of the values that `emit` carries outward from this fragment.
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


def parse_fragment(path: str, text: str) -> Fragment:
    """Reads a fragment.

    Args:
        path: `fragments/FOLDER/NAME.py`.
        text: what the file holds.

    Raises:
        LoomError: the text is not Python, or holds a top-level statement that a fragment cannot have.
    """
    name = path.removeprefix("fragments/").removesuffix(".py")
    source = Source(Traced.copy(text, path))
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
    elif syntax.called(call) in ("requires", "excludes"):
        names = [ast.literal_eval(source.code(argument.value)) for argument in call.args]
        getattr(parts, syntax.called(call)).extend(names)
    elif isinstance(statement, cst.FunctionDef) and _mark(statement, "splice"):
        parts.splices.append(_read_splice(statement, source, fragment))
    elif isinstance(statement, cst.FunctionDef) and _mark(statement, "provide"):
        parts.providers.append(_read_provider(statement, source, fragment))
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
        start, end = source.lines(statement)
        parts.definitions.append(Definition(name, source.traced[start:end], fragment))


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
    origin = source.traced.origin_at(source.span(statement)[0])
    (node,) = ast.parse(source.code(statement)).body
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            raise LoomError(
                "a relative import", str(origin), "Import the name with `from generator.roles import NAME`."
            )
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


def _mark(function: cst.FunctionDef, word: str) -> cst.Call | None:
    for decorator in function.decorators:
        if syntax.called(decorator.decorator) == word:
            return cst.ensure_type(decorator.decorator, cst.Call)
    return None


def _options(call: cst.Call, source: Source, known: tuple[str, ...]) -> tuple[str, dict]:
    """The first argument of a mark and its keywords, which must be literals."""
    first, options = "", {}
    for argument in call.args:
        word = argument.keyword.value if argument.keyword else ""
        try:
            value = ast.literal_eval(source.code(argument.value))
        except ValueError:
            value = None
        if (word and word not in known) or value is None:
            remedy = f"Give the name as a string, then any of {', '.join(known)} as literals."
            raise LoomError(f"cannot read this argument of {syntax.called(call)}()", source.where(argument), remedy)
        if word:
            options[word] = value
        else:
            first = value
    return first, options


def _read_splice(function: cst.FunctionDef, source: Source, fragment: str) -> Splice:
    call = _mark(function, "splice")
    name, options = _options(call, source, ("before", "after", "optional"))
    statements = [s for s in syntax.body(function) if not syntax.is_docstring(s)]
    if not statements:
        raise LoomError(f"the splice for {name} has no statements", source.where(function), "Write some, or remove it.")
    start, end = source.lines(statements[0])[0], source.lines(statements[-1])[1]
    return Splice(
        point=name,
        reads=tuple(p.name.value for p in syntax.parameters(function)),
        body=source.traced[start:end],
        before=tuple(options.get("before", "").split()),
        after=tuple(options.get("after", "").split()),
        optional=options.get("optional", False),
        fragment=fragment,
        origin=source.traced.origin_at(source.span(function.name)[0]),
    )


def _read_provider(function: cst.FunctionDef, source: Source, fragment: str) -> Provider:
    call = _mark(function, "provide")
    site, options = _options(call, source, ("optional", "per_layer"))
    statements = [s for s in syntax.body(function) if not syntax.is_docstring(s)]
    last = syntax.simple(statements[-1]) if statements else None
    if not isinstance(last, cst.Return) or last.value is None:
        raise LoomError(
            f"the provider of {function.name.value} does not end in `return VALUE`",
            source.where(function),
            "Return the value in the last line.",
        )
    begin = source.lines(statements[0])[0]
    start, end = source.span(last.value)[0], source.lines(statements[-1])[1]
    return Provider(
        value=function.name.value,
        site=site,
        reads=tuple(p.name.value for p in syntax.parameters(function)),
        body=source.traced[begin : source.lines(statements[-1])[0]],
        result=source.traced[start : end - 1],
        annotation=source.code(function.returns.annotation) if function.returns else "",
        optional=options.get("optional", False),
        per_layer=options.get("per_layer", False),
        fragment=fragment,
        origin=source.traced.origin_at(source.span(function.name)[0]),
    )


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
