"""Parses one fragment: a Python module that holds one feature."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from generator.code.bindings import imported_name, is_role_import
from generator.code.caching import cached
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, TracedTree, called_name, is_docstring, walk
from generator.errors import LoomError
from generator.language.grammar import (
    check_decorators,
    check_imports,
    check_parameters,
    check_python,
    check_style,
    find_depth,
)
from generator.language.marks import find_mark, literal_of, read_provider, read_splices
from generator.language.parts import Definition, Field, Import, Provider, Splice

_CONCERN = re.compile(r"([A-Z]\w*)?Config")  # a class of fields
_NAMES, _PAIR = "names of fragments", "two strings"
_DECLARATIONS = {  # word -> attribute of a fragment, kind of arguments, example
    "requires": ("requires", _NAMES, '"rope", ...'),
    "excludes": ("excludes", _NAMES, '"rope", ...'),
    "layers.further": ("further_layers", _PAIR, '"STACK", "COUNT"'),
    "alike": ("alike", _PAIR, '"FUNCTION", "SITE"'),
}
_Parts = defaultdict[str, list[Any]]  # attribute of a fragment -> the parts that have been read


@dataclass(frozen=True)
class Fragment:
    """One feature.

    Attributes:
        name: path below fragments/ without `.py`: `model/rope`.
        title, citation: the first line of the docstring, and the paragraphs after `Source:`.
        concerns: the docstrings of classes of fields, such as ModelConfig; the other parts of these have none.
        further_layers: the path of a stack of layers after the last, and their number.
        alike: a function, and a site whose values are provided in it too.
    """

    name: str
    path: str
    title: str
    citation: str
    imports: dict[str, Import]
    definitions: tuple[Definition, ...] = ()
    fields: tuple[Field, ...] = ()
    concerns: tuple[Definition, ...] = ()
    splices: tuple[Splice, ...] = ()
    providers: tuple[Provider, ...] = ()
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


@cached
def parse_fragment(path: str, text: str) -> Fragment:
    """Reads a fragment.

    Args:
        path: `fragments/FOLDER/NAME.py`.
        text: what the file holds.
    """
    text += "" if text.endswith("\n") else "\n"  # statements are copied by whole lines
    check_python(text, path)
    name, parts = path.removeprefix("fragments/").removesuffix(".py"), _Parts(list)
    try:
        source = TracedTree(Traced.copy(text, path))
        check_style(source)
        check_parameters(source)
        _check_roles(source)
        for node in source.module.body:
            _read_statement(node, source, name, parts)
        check_imports(source)
    except RecursionError:
        remedy = "Write it flatter: a table or a loop for many branches."
        raise LoomError("nested too deeply", f"{path}:{find_depth(text)[1]}", remedy) from None
    title, citation = _read_docstring(source.module)
    imports = dict(parts.pop("imports", ()))
    return Fragment(name, path, title, citation, imports, **{key: tuple(items) for key, items in parts.items()})


def _check_roles(source: TracedTree) -> None:
    """Refuses an unused import of a role: the import or the use is misspelt, and the weaver links uses."""
    words = Counter(re.findall(r"\w+", source.text))
    for node in walk(source.module):
        if isinstance(node, ast.ImportFrom) and is_role_import(node):
            for alias in node.names:
                if words[alias.name] == 1:
                    message = f"imports {alias.name} and does not use it"
                    raise LoomError(message, source.where(alias), "Take it out, or spell it as it is used.")


def _read_docstring(module: ast.Module) -> tuple[str, str]:
    text = inspect.cleandoc(ast.get_docstring(module) or "")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    citations = [p.removeprefix("Source:").strip() for p in paragraphs if p.startswith("Source:")]
    return paragraphs[0].rstrip("."), "; ".join(citations).rstrip(".")


def _read_statement(node: ast.stmt, source: TracedTree, fragment: str, parts: _Parts) -> None:
    """Reads a statement at the top of a fragment."""
    value = node.value if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, (str, bytes)):
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        _read_import(node, source, parts)
    elif isinstance(value, ast.Call) and called_name(value) in _DECLARATIONS:
        _read_declaration(value, source, parts)
    elif isinstance(node, FUNCTIONS) and (call := find_mark(node, "splice")):
        parts["splices"] += read_splices(node, call, source, fragment)
    elif isinstance(node, FUNCTIONS) and (call := find_mark(node, "provide")):
        parts["providers"].append(read_provider(node, call, source, fragment))
    elif isinstance(node, ast.ClassDef) and _CONCERN.fullmatch(node.name) and not (node.bases or node.decorator_list):
        _read_fields(node, source, fragment, parts)
    elif name := _defined_name(node):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            check_decorators(node, source, woven=False)
        parts["definitions"].append(Definition(name, source.lines(node), fragment))
    else:
        message = "a fragment holds imports, functions, classes, values, splices and providers, and nothing else"
        raise LoomError(message, source.where(node), "Move this statement into a function.")


def _read_declaration(call: ast.Call, source: TracedTree, parts: _Parts) -> None:
    """Reads names of fragments, or a pair of strings."""
    word = called_name(call)
    part, takes, example = _DECLARATIONS[word]
    strings = tuple(value for argument in call.args if isinstance(value := literal_of(argument), str))
    if len(strings) < len(call.args) + len(call.keywords) or (takes is _PAIR and len(strings) != 2):
        raise LoomError(f"{word} takes {takes}", source.where(call), f"Write {word}({example}).")
    parts[part].extend([strings] if takes is _PAIR else strings)


def _defined_name(node: ast.stmt) -> str:
    """Returns the name that a statement defines, '' if it defines nothing."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return node.name
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    test = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return "__main__" if any(isinstance(part, ast.Name) and part.id == "__name__" for part in test) else ""


def _read_import(node: ast.Import | ast.ImportFrom, source: TracedTree, parts: _Parts) -> None:
    """Reads an import, except of the language, roles and other fragments: these are linked by name."""
    origin = source.origin(node)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            remedy = "Import the name with `from generator.language.roles import NAME`."
            raise LoomError("a relative import", str(origin), remedy)
        if module.split(".")[0] in ("fragments", "generator", "__future__"):
            return
        for alias in node.names:
            bound = alias.asname or alias.name
            parts["imports"].append((bound, Import(module, alias.name, bound, origin)))
    else:
        for alias in node.names:
            # `import a.b` binds a; two of them are two lines under one name, so the key is the module
            imported = Import(alias.name, "", imported_name(alias), origin)
            parts["imports"].append((alias.asname or alias.name, imported))


def _read_fields(node: ast.ClassDef, source: TracedTree, fragment: str, parts: _Parts) -> None:
    for statement in node.body:
        text = source.lines(statement)
        match statement:
            case ast.Expr() if is_docstring(statement):
                parts["concerns"].append(Definition(node.name, text, fragment))
            case ast.AnnAssign(target=ast.Name(name)) | ast.FunctionDef(name=name):
                parts["fields"].append(Field(name, text, fragment, node.name))
            case _:
                remedy = "Write `name: type = default  # meaning, unit`, or a property."
                raise LoomError(f"{node.name} holds annotated fields and properties", source.where(statement), remedy)
