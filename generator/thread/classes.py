"""The classes of a package: their bases, their methods, and what their attributes are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError
from generator.thread.functions import Function
from generator.thread.names import ASSIGNING, parts_of, targets_of


class Classes:
    """The classes of the definitions.

    Attributes:
        bases: class -> its bases among these classes.
        has_config: classes that keep their config as self.config.
        stated: class and attribute -> the annotation of the attribute, '' for one without.
        given: attribute -> key, target and value of each assignment, whatever it is an attribute of.
    """

    def __init__(self, sources: Mapping[str, Source], functions: Mapping[str, Function]):
        self._functions = functions
        self.nodes = {
            statement.name.value: (statement, key)
            for key, source in sources.items()
            for statement in source.module.body
            if isinstance(statement, cst.ClassDef)
        }
        named = {name: [syntax.dotted(base.value) for base in node.bases] for name, (node, _) in self.nodes.items()}
        self.bases = {name: [base for base in bases if base in self.nodes] for name, bases in named.items()}
        try:
            order = [*TopologicalSorter(self.bases).static_order()]
        except CycleError as error:
            start, where = self.nodes[error.args[1][0]]
            message = f"{' and '.join(dict.fromkeys(error.args[1]))} inherit from each other"
            raise LoomError(message, sources[where].where(start), "Remove one of the bases.") from None
        self._lineages: dict[str, list[str]] = {}
        for name in order:
            above = [kind for base in self.bases[name] for kind in self._lineages[base]]
            self._lineages[name] = list(dict.fromkeys([name, *above]))
        self.has_config: set[str] = set()
        self.stated: dict[tuple[str, str], str] = {}
        self.given: dict[str, list[tuple[str, cst.Attribute, cst.BaseExpression | None]]] = {}
        for name, (node, key) in self.nodes.items():
            self._read_class(name, node, sources[key])
        for key, source in sources.items():
            for assigning in syntax.below(source.module, *ASSIGNING):
                for target in targets_of(assigning):
                    self._read_target(target, getattr(assigning, "value", None), key)
        self.attributes = frozenset((*self.given, *(attribute for _, attribute in self.stated)))

    def lineage(self, name: str) -> list[str]:
        """A class and those that it inherits from."""
        return self._lineages.get(name, [])

    def family(self, name: str) -> list[str]:
        """A class and those that inherit from it."""
        return [kind for kind, lineage in self._lineages.items() if name in lineage]

    def methods(self, name: str, method: str) -> set[str]:
        """The functions that a method of a class may be: its own, or those of its bases."""
        if f"{name}.{method}" in self._functions:
            return {f"{name}.{method}"}
        return {found for base in self.bases.get(name, ()) for found in self.methods(base, method)}

    def called(self, name: str, method: str) -> str:
        """The one function that a method of any instance of a class is, else ''."""
        found = {frozenset(self.methods(kind, method)) for kind in self.family(name)}
        computed = any(self.methods(name, word) for word in ("__getattr__", "__getattribute__"))
        methods = found.pop() if len(found) == 1 and not computed else frozenset()
        return next(iter(methods)) if len(methods) == 1 else ""

    def named(self, annotation: str) -> str:
        """The class of an annotation: `Block`, `"Block"`, `Block | None`, `Optional[Block]`; else ''."""
        text = annotation.strip("\"' ")
        optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
        found = [part.strip("\"' ") for part in (optional[1] if optional else text).split("|")]
        found = [part for part in found if part != "None"]
        return found[0] if len(found) == 1 and found[0] in self.bases else ""

    def mentioned(self, annotation: str) -> set[str]:
        """The classes that an annotation names: `list[Block]`."""
        return self.bases.keys() & set(re.findall(r"\w+", annotation))

    def attribute(self, name: str, attribute: str) -> str:
        """The class of an attribute: as it is stated, or as every `self.attribute = Class(...)` says."""
        for kind in self.lineage(name):
            if (kind, attribute) in self.stated:
                return self.named(self.stated[kind, attribute])
        related = {*self.lineage(name), *self.family(name)}
        kinds = set()
        for key, target, value in self.given.get(attribute, ()):
            owner = key.rpartition(":")[2] if syntax.dotted(target.value) == "self" else ""
            if owner not in self.bases or owner in related:
                made = syntax.called(value)
                kinds.add(made if made in self.bases else "")
        return kinds.pop() if len(kinds) == 1 else ""

    def _read_class(self, name: str, node: cst.ClassDef, source: Source) -> None:
        for below in syntax.below(node, cst.AnnAssign, cst.Assign):
            target = syntax.dotted(next(targets_of(below)))
            if target == "self.config":
                self.has_config.add(name)
            if isinstance(below, cst.AnnAssign) and target.startswith("self."):
                self.stated[name, target.removeprefix("self.")] = source.code(below.annotation.annotation)
        for statement in map(syntax.simple, syntax.body(node)):
            if isinstance(statement, cst.AnnAssign):
                self.stated[name, syntax.dotted(statement.target)] = source.code(statement.annotation.annotation)
            elif isinstance(statement, cst.Assign):
                for assigned in statement.targets:
                    self.stated.setdefault((name, syntax.dotted(assigned.target)), "")

    def _read_target(self, target: cst.CSTNode, value: cst.BaseExpression | None, key: str) -> None:
        """Of `x.a = value` the value; of `x.a, y = ...` and the like nothing that says more."""
        for part in parts_of(target):
            if isinstance(part, cst.Attribute):
                self.given.setdefault(part.attr.value, []).append((key, part, value if part is target else None))
