"""Renames variables, and puts expressions in their place, by Python's rules of scope."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import partial

import libcst as cst

from generator.code.bindings import Scope, names_in_quotes, scopes_of
from generator.code.edits import Edits
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, walk
from generator.errors import LoomError


def replace_names(text: Traced, replaced: Mapping[str, str]) -> Traced:
    """Replaces names that statements read from outside, or bind at their top, by other names or expressions."""
    edits = Edits(body := TracedTree(text))
    scopes = scopes_of(body.tree)
    in_strings = {
        name: node for node in walk(body.module) if isinstance(node, ast.FormattedValue) for name in walk(node.value)
    }
    for name, node, scope in scopes.occurrences:
        new = replaced.get(name, name) if scope.binder(name) in (None, scopes.module) else name
        if new == name:
            continue
        if string := in_strings.get(node):
            # f"{name=}", and what Python 3.11 refuses
            if edits.find(string).equal or re.search(r"[\"'\\\n]", new):
                message = f"{name} stands for {new} here, which cannot be written in this f-string"
                raise LoomError(message, body.where(node), "Give it a name of its own in a line above.")
            new = f"({new})" if new.startswith("{") else new
        if new.isidentifier():
            edits.rename(node, name, new)
        else:
            edits.replace(node, new)
    return edits.made()


def rename(edits: Edits, new: Callable[[str], str | None]) -> None:
    """Renames free names and names that are bound at the top, in quoted annotations too.

    Args:
        edits: of the text, to which the changes are added.
        new: returns the new name for a name, or None to keep it.
    """
    scopes = scopes_of(edits.source.tree)

    def renamed(name: str, scope: Scope) -> str:
        return (scope.binder(name) in (None, scopes.module) and new(name)) or name

    for name, node, scope in scopes.occurrences:
        if (other := renamed(name, scope)) != name:
            edits.rename(node, name, other)
    for string, annotation, scope in scopes.quoted:
        names = {name: other for name in names_in_quotes(annotation) if (other := renamed(name, scope)) != name}
        if names:
            edits.change(string, partial(_rename_in_quotes, names=names))


def _rename_in_quotes(string: cst.BaseString, names: dict[str, str]) -> cst.BaseString:
    """Returns a quoted annotation with other names in it; one in several strings stays."""
    if not isinstance(string, cst.SimpleString):
        return string
    edits = Edits(TracedTree(Traced.insert(string.raw_value, Origin("", 1))))
    for node in walk(edits.source.module):
        if isinstance(node, ast.Name) and node.id in names:
            edits.rename(node, node.id, names[node.id])
    return string.with_changes(value=f"{string.prefix}{string.quote}{edits.made().text}{string.quote}")
