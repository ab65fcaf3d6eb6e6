"""The fill operator: `setting("name")` becomes a literal, and a branch on a setting is decided.

before                                      after, for an architecture with gated = true
    if setting("gated"):                        h = jax.nn.silu(self.gate(x)) * self.up(x)
        h = jax.nn.silu(self.gate(x)) * self.up(x)
    else:
        h = jax.nn.gelu(self.up(x))
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import libcst as cst

from generator.code.concrete import attached
from generator.code.edits import Edits, Statement
from generator.code.literals import literal
from generator.code.traced import Traced
from generator.code.tree import TracedTree, called_name, children, walk
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.expressions import evaluate
from generator.recipe.recipe import Recipe
from generator.weave.count import count_layers

_ARGUMENTS = "==, !=, <, <=, >, >=, in, not in, not, and, or"


def fill_text(text: Traced, fragment: Fragment, recipe: Recipe) -> Traced:
    """Returns statements of a fragment with their settings filled and their layers counted."""
    return count_layers(fill(text, recipe.settings), fragment.name, recipe.pattern)


def fill_fragment(fragment: Fragment, recipe: Recipe) -> Fragment:
    """Returns a fragment whose statements are filled."""

    def filled(text: Traced) -> Traced:
        return fill_text(text, fragment, recipe)

    return replace(
        fragment,
        definitions=tuple(replace(d, text=filled(d.text)) for d in fragment.definitions),
        splices=tuple(replace(s, body=filled(s.body)) for s in fragment.splices),
        providers=tuple(replace(p, body=filled(p.body), returned=filled(p.returned)) for p in fragment.providers),
    )


def fill(text: Traced, settings: dict[str, object]) -> Traced:
    """Fills every setting in whole statements.

    Args:
        text: Python statements, indented or not.
        settings: name -> a string, number, boolean or list of them.
    """
    if "setting(" not in text.text:
        return text
    edits = Edits(TracedTree(text))
    _Fill(edits, settings).visit(edits.source.module)
    return edits.made()


class _Fill:
    """Collects the changes that fill settings; a branch that is not chosen is not visited."""

    def __init__(self, edits: Edits, settings: dict[str, object]):
        self._edits, self._settings = edits, settings

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.If) and _is_decided(node.test):
            self._choose_branch(node)
        elif isinstance(node, ast.IfExp) and _is_decided(node.test):
            is_true = self._evaluate(node.test)
            self.visit(node.body if is_true else node.orelse)
            self._edits.change(
                node,
                lambda choice: self._edits.in_parentheses_of(choice, choice.body if is_true else choice.orelse),
            )
        elif isinstance(node, ast.FormattedValue) and self._is_number(node):
            text = cst.FormattedStringText(str(self._value(node.value)))
            self._edits.change(node, lambda _: self._edits.new(text, self._edits.source.origin(node.value)))
        elif called_name(node) == "setting":
            self._fill_literal(node)
        else:
            self._visit_all(children(node))

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _fill_literal(self, call: ast.AST) -> None:
        source = self._edits.source
        quote = "'" if "'" in source.code(call) else '"'  # that of the name: the call may be in an f-string
        text = literal(self._value(call), source.where(call), quote)
        # `setting("n").real` needs (3), and `setting("n") ** 2` needs (-3)
        is_owner = isinstance(self._edits.parent(call), cst.Attribute)
        alone = text[0] != "-" and not (text[0].isdigit() and is_owner)
        self._edits.replace(call, text if alone else f"({text})")

    def _is_number(self, node: ast.FormattedValue) -> bool:
        """Returns whether a value in an f-string is a setting, an integer without a format."""
        is_plain = called_name(node.value) == "setting" and node.conversion == -1 and node.format_spec is None
        return is_plain and not self._edits.find(node).equal and isinstance(self._value(node.value), int)

    def _value(self, call: ast.AST) -> object:
        """Returns the value of the setting that a call asks for."""
        where = self._edits.source.where(call)
        match call:
            case ast.Call(args=[ast.Constant(str(name))], keywords=[]):
                if name in self._settings:
                    return self._settings[name]
                remedy = "Give it under [settings] in the architecture or the target. "
                remedy += nearest(name, self._settings)
                raise LoomError(f"no selected architecture or target has the setting {name!r}", where, remedy)
        raise LoomError("setting() takes a name as a string", where, 'Write setting("NAME").')

    def _evaluate(self, test: ast.expr) -> bool:
        """Evaluates a test over settings and literals."""
        edits = Edits(self._edits.source)
        _Fill(edits, self._settings).visit(test)
        try:
            return bool(evaluate(edits.text(test), {}))
        except (ValueError, TypeError, SyntaxError):
            remedy = f"Use {_ARGUMENTS} over settings and literals of one type."
            where = self._edits.source.where(test)
            raise LoomError("this test of a setting cannot be decided while weaving", where, remedy) from None

    def _choose_branch(self, node: ast.If) -> None:
        """Puts the statements of the true branch in place of the whole statement; of an `elif`, in place of the rest.

        A branch whose test is evaluated when the package runs begins the statement then.
        """
        chain, depth, branch = self._edits.find(node), 0, node
        while _is_decided(branch.test) and not self._evaluate(branch.test):
            depth += 1
            if not isinstance(_branch(chain, depth), cst.If):
                self._visit_all(branch.orelse)
                break
            (branch,) = branch.orelse  # type: ignore[assignment]
        else:
            self._visit_all(branch.body if _is_decided(branch.test) else [branch])
        is_open = not _is_decided(branch.test)
        if isinstance(self._edits.parent(node), cst.If):
            self._edits.change(node, lambda chain: self._as_elif(chain, _branch(chain, depth), is_open, node))
        else:
            self._edits.put(node, lambda chain: self._as_statements(_branch(chain, depth), is_open))

    def _as_elif(self, chain: cst.If, branch: cst.If | cst.Else | None, is_open: bool, node: ast.If) -> Any:
        """Returns what takes the place of an `elif`."""
        if branch is None:
            return cst.RemoveFromParent()
        if is_open:
            return self._edits.altered(branch, leading_lines=chain.leading_lines)
        new = cst.Else(branch.body, leading_lines=chain.leading_lines)
        return self._edits.new(new, self._edits.source.origin(node))

    def _as_statements(self, branch: cst.If | cst.Else | None, is_open: bool) -> Sequence[Any]:
        """Returns what takes the place of a whole statement."""
        if branch is None:
            return []
        if is_open:
            return [self._edits.altered(branch, leading_lines=())]
        first, *others = cast(Sequence[Statement], branch.body.body)
        return [self._edits.altered(first, leading_lines=attached(first.leading_lines)), *others]


def _branch(chain: cst.If | cst.Else | None, depth: int) -> cst.If | cst.Else | None:
    """Returns a branch of an `if` by its number."""
    return _branch(chain.orelse, depth - 1) if depth and isinstance(chain, cst.If) else chain


def _is_decided(test: ast.expr) -> bool:
    """Returns whether a test has only settings and literals."""
    return {node.id for node in walk(test) if isinstance(node, ast.Name)} == {"setting"}
