"""The classes of a package: what they inherit, and what their attributes are said to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError
from generator.thread.functions import Function
from generator.thread.names import Names, targets_of


class Classes:
    """The classes of the definitions.

    Attributes:
        nodes: class -> its node and the key of its definition.
        has_config: classes that keep their config as self.config.
        stated: class and attribute -> the annotation of the attribute, '' for one without.
        assigned: attribute -> key, target and value of each assignment, whatever it is an attribute of.
        attributes: the names of all attributes.
    """

    def __init__(self, sources: Mapping[str, Source], functions: Mapping[str, Function], names: Names):
        self._functions = functions
        self.nodes = {
            statement.name.value: (statement, key)
            for key, source in sources.items()
            for statement in source.module.body
            if isinstance(statement, cst.ClassDef)
        }
        bases = {
            name: [word for base in node.bases if (word := syntax.dotted(base.value)) in self.nodes]
            for name, (node, _) in self.nodes.items()
        }
        try:
            order = [*TopologicalSorter(bases).static_order()]
        except CycleError as error:
            start, where = self.nodes[error.args[1][0]]
            message = f"{' and '.join(dict.fromkeys(error.args[1]))} inherit from each other"
            raise LoomError(message, sources[where].where(start), "Remove one of the bases.") from None
        self._lineages: dict[str, list[str]] = {}
        for name in order:
            above = [kind for base in bases[name] for kind in self._lineages[base]]
            self._lineages[name] = list(dict.fromkeys([name, *above]))
        self.has_config: set[str] = set()
        self.stated: dict[tuple[str, str], str] = {}
        for name, (node, key) in self.nodes.items():
            self._read_class(name, node, sources[key])
        self.assigned: dict[str, list[tuple[str, cst.Attribute, cst.BaseExpression | None]]] = {}
        for key, text in names.texts.items():
            for target, value in text.assigned:
                self.assigned.setdefault(target.attr.value, []).append((key, target, value))
        self.attributes = frozenset((*self.assigned, *(attribute for _, attribute in self.stated)))

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

    def lineage(self, name: str) -> list[str]:
        """A class and those that it inherits from."""
        return self._lineages.get(name, [])

    def family(self, name: str) -> list[str]:
        """A class and those that inherit from it."""
        return [kind for kind, lineage in self._lineages.items() if name in lineage]

    def methods(self, name: str, method: str) -> set[str]:
        """The functions that a method of a class may be."""
        return {id for kind in self.lineage(name) if (id := f"{kind}.{method}") in self._functions}

    def method(self, name: str, method: str) -> str:
        """The one function that a method of any instance of a class is, else ''."""
        kinds = self.family(name)
        found = {id for kind in kinds for id in self.methods(kind, method)}
        computed = any(self.methods(kind, word) for kind in kinds for word in ("__getattr__", "__getattribute__"))
        return found.pop() if len(found) == 1 and not computed else ""

    def named(self, annotation: str) -> str:
        """The class of an annotation: `Block`, `"Block"`, `Block | None`, `Optional[Block]`; else ''."""
        text = annotation.strip("\"' ")
        optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
        found = [part.strip("\"' ") for part in (optional[1] if optional else text).split("|")]
        found = [part for part in found if part != "None"]
        return found[0] if len(found) == 1 and found[0] in self.nodes else ""

    def mentioned(self, annotation: str) -> set[str]:
        """The classes that an annotation names: `list[Block]`."""
        return self.nodes.keys() & set(re.findall(r"\w+", annotation))

    def attribute(self, name: str, attribute: str) -> str:
        """The class of an attribute: as it is stated, or as every `self.attribute = Class(...)` says."""
        for kind in self.lineage(name):
            if (kind, attribute) in self.stated:
                return self.named(self.stated[kind, attribute])
        related = {*self.lineage(name), *self.family(name)}
        kinds = set()
        for key, target, value in self.assigned.get(attribute, ()):
            owner = key.rpartition(":")[2] if syntax.dotted(target.value) == "self" else ""
            if owner not in self.nodes or owner in related:
                made = syntax.called(value)
                kinds.add(made if made in self.nodes else "")
        return kinds.pop() if len(kinds) == 1 else ""
