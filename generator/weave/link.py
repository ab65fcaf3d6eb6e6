"""The link operator: resolves names to definitions, as in object files.

A free name of a definition is a builtin, an import of its fragment, or the one definition of that name among the
selected fragments. Unreachable definitions are left out.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from generator.code.bindings import free_names, is_role_import
from generator.code.caching import cached
from generator.code.traced import Origin, Traced
from generator.code.tree import FUNCTIONS, TracedTree, parse, walk
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.language.grammar import WORDS
from generator.language.parts import Definition, Import

PRIVATE = frozenset({"main", "__main__"})  # each file may have its own
RESERVED = frozenset({"ARCHITECTURE", "Config", "PRESETS", "CHIPS", "HARDWARE", "RECIPES"})  # defined in config.py
_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__package__"}


def collect_definitions(fragments: Iterable[Fragment], file_of: Callable[[Fragment], str]) -> dict[str, Definition]:
    """Returns all definitions by key: the name, or `file:name` if the definition is private to its file.

    Helpers in tests/ are private to that folder: `tests/:name`.
    """
    definitions: dict[str, Definition] = {}
    fragments = list(fragments)
    reserved = RESERVED | {member.concern for fragment in fragments for member in fragment.fields}
    for fragment in fragments:
        file = file_of(fragment)
        for definition in fragment.definitions:
            if definition.name in _BUILTINS or definition.name in reserved:
                owner = "every package has" if definition.name in reserved else "is built into Python"
                remedy = "Give it another name, so that no use of it is taken for the other."
                raise LoomError(
                    f"{definition.fragment} defines {definition.name}, which {owner}", str(_where(definition)), remedy
                )
            scope = _visible_in(file) or (file if definition.name in PRIVATE else "")
            key = f"{scope}:{definition.name}" if scope else definition.name
            if key in definitions:
                first, second = definitions[key], definition
                raise LoomError(
                    f"{second.fragment} defines {definition.name}, which {first.fragment} "
                    f"({_where(first)}) also defines",
                    str(_where(second)),
                    "Select one of the two fragments, or give one of the names a new one.",
                )
            definitions[key] = definition
    return definitions


def _visible_in(file: str) -> str:
    """Returns the only place that sees the definitions of a file, '' for all: a test its own, tests/ its helpers."""
    folder, _, name = file.rpartition("/")
    return "" if folder != "tests" else file if name.startswith(("test_", "conftest")) else "tests/"


@cached
def role_imports(text: str) -> tuple[tuple[ast.ImportFrom, ...], ...]:
    """Returns the imports of roles inside a definition: they stand where the modules that define these are loaded.

    Those of one function, which the splices in it brought, are together, if the first is a statement of its body.
    """
    groups = list[tuple[ast.ImportFrom, ...]]()
    nodes = walk(parse(text).module) if "generator.language.roles" in text else ()
    for function in (node for node in nodes if isinstance(node, FUNCTIONS)):
        inside = [node for node in walk(*function.body) if isinstance(node, ast.ImportFrom) and is_role_import(node)]
        late = tuple(node for node in inside if not any(node in group for group in groups))
        groups += [late] if late and late[0] in function.body else [(node,) for node in late]
    return tuple(groups)


def _where(definition: Definition) -> Origin:
    return origin_of(definition.text, definition.name)


def origin_of(text: Traced, name: str) -> Origin:
    """Returns the origin of the first use or definition of `name` in a text."""
    source = TracedTree(text)
    for node in walk(source.module):
        named = isinstance(node, ast.Name) and node.id == name
        if named or (isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name):
            return source.origin(node)
    return text.origin_at(0)


@dataclass(frozen=True)
class References:
    """The references of a definition.

    Attributes:
        uses: keys of other definitions, in order of first use.
        imports: the imports that its text needs.
        late: those of `uses` that the text itself imports, when it runs.
    """

    uses: tuple[str, ...]
    imports: tuple[Import, ...]
    late: frozenset[str] = frozenset()


class Linker:
    """Resolves the free names of woven texts.

    Args:
        definitions: key -> definition, woven.
        fragments: the selected ones.
        others: returns every fragment of the library, for suggestions.
        extra: name that every package defines (`Config`, `PRESETS`, `ARCHITECTURE`) -> key.
        ambient: imports that these definitions need.
    """

    def __init__(
        self,
        definitions: dict[str, Definition],
        fragments: Iterable[Fragment],
        others: Callable[[], Iterable[Fragment]],
        extra: dict[str, str],
        ambient: tuple[Import, ...] = (),
    ):
        self.definitions, self._others, self._extra, self._ambient = definitions, others, extra, ambient
        self._by_path = {fragment.path: fragment for fragment in fragments}

    def link(self, text: Traced, file: str) -> References:
        """Returns the references of a text in `file`."""
        uses, imports = [], []
        imported, nodes = self._imports(text), [node for group in role_imports(text.text) for node in group]
        late = {alias.name for node in nodes for alias in node.names}
        for name in free_names(text.text):
            keys = f"{file}:{name}", f"{file.rpartition('/')[0]}/:{name}", name
            key = next((key for key in keys if key in self.definitions), self._extra.get(name, ""))
            candidates = imported.get(name, [])
            if key and candidates:
                self._ambiguous(name, key, candidates[0])
            elif key:
                uses.append(key)
            elif candidates:
                imports += candidates
            elif name not in _BUILTINS:
                self._undefined(name, text)
        return References(tuple(uses), tuple(imports), frozenset(key for key in uses if key.split(":")[-1] in late))

    def _imports(self, text: Traced) -> dict[str, list[Import]]:
        """Returns the imports of a text's own fragments, by the names that they bind."""
        own = [i for path in text.paths() if path in self._by_path for i in self._by_path[path].imports.values()]
        by_alias: dict[str, dict[tuple[str, str], Import]] = {}
        for item in own:
            by_alias.setdefault(item.alias, {}).setdefault((item.module, item.name), item)
        ambient = {item.alias: [item] for item in self._ambient}
        return ambient | {alias: list(items.values()) for alias, items in by_alias.items()}

    def _ambiguous(self, name: str, key: str, imported: Import) -> None:
        definition = self.definitions.get(key)
        other = f"{definition.fragment} ({_where(definition)})" if definition else "every package"
        module = f"{imported.module}.{imported.name}" if imported.name else imported.module
        message = f"{name} is imported here from {module}, and {other} defines {name}"
        raise LoomError(message, str(imported.origin), "Give one of them another name.")

    def _undefined(self, name: str, text: Traced) -> None:
        origin = origin_of(text, name)
        if name in WORDS:
            remedy = f"Write {name}(...) as a statement of its own, in a function of a fragment."
            raise LoomError(f"{name}() cannot be woven here", str(origin), remedy)
        user = origin.path.removeprefix("fragments/").removesuffix(".py")
        defining = [f for f in self._others() if any(definition.name == name for definition in f.definitions)]
        could = [fragment for fragment in defining if fragment.path not in self._by_path]  # others are private to tests
        shown = ", ".join(f"{fragment.name} ({fragment.path})" for fragment in could)
        remedy = f"Select a fragment that defines it: {shown}." if could else "Define it or import it."
        message = f"{user} uses {name}, which no selected fragment defines"
        raise LoomError(message, str(origin), remedy, candidates=[fragment.name for fragment in could])


def reachable(roots: Iterable[str], linked: Callable[[str], References]) -> list[str]:
    """Returns the keys that are reachable from the roots, in topological order: each after the ones that it uses."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(key: str) -> None:
        if key in seen:
            return
        seen.add(key)
        for used in linked(key).uses:
            visit(used)
        order.append(key)

    for root in roots:
        visit(root)
    return order
