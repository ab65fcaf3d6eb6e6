"""Changes of a text, before and after: the rest stays as it is, with its comments, and keeps the lines it comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable
from textwrap import dedent

import pytest

from generator.code.arguments import add_arguments, add_parameters, beside, first_item, packed
from generator.code.edits import Edits
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, called_name, statement_expression, walk
from generator.errors import LoomError

CAUSE = Origin("cause.py", 9)
Change = Callable[[Edits, dict[str, ast.AST]], None]


def named(source: TracedTree) -> dict[str, ast.AST]:
    """The calls by their function, functions by their name, and statements `NAME()` by `NAME;`."""
    found: dict[str, ast.AST] = {}
    for node in walk(source.module):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        if isinstance(node, ast.Return):
            found["return"] = node
        if name := called_name(node):
            found[name] = node
        if name := called_name(statement_expression(node)):
            found[f"{name};"] = node
    return found


def changed(text: str, change: Change) -> Traced:
    edits = Edits(TracedTree(Traced.copy(dedent(text).lstrip("\n"), "host.py")))
    change(edits, named(edits.source))
    return edits.made()


def added(*texts: str) -> list[tuple[str, Origin]]:
    return [(text, CAUSE) for text in texts]


def lines(edits: Edits, *texts: str) -> list:
    return [edits.statement(text, CAUSE) for text in texts]


ARGUMENTS = {
    "f()": "f(b, c=d)",
    "f(a)": "f(a, b, c=d)",
    "f(a,)": "f(a, b, c=d,)",
    "f(\n    a,  # why\n    x,\n)": "f(\n    a,  # why\n    x, b, c=d,\n)",
    "f(\n    a\n)": "f(\n    a, b, c=d\n)",
    "f((a))": "f((a), b, c=d)",
    "g(f(a), 2)": "g(f(a, b, c=d), 2)",
}


@pytest.mark.parametrize(("before", "after"), ARGUMENTS.items())
def test_arguments(before, after):
    made = changed(f"x = {before}\n", lambda edits, nodes: add_arguments(edits, nodes["f"], added("b", "c=d")))
    assert made.text == f"x = {after}\n"
    assert {piece.text for piece in made.pieces if piece.origin == CAUSE} <= {"b, c=d", ", b, c=d"}


def test_arguments_in_front():
    made = changed("f(a, b)\n", lambda edits, nodes: add_arguments(edits, nodes["f"], added("x", "y"), 0))
    assert made.text == "f(x, y, a, b)\n"
    made = changed("f(a, b)\n", lambda edits, nodes: add_arguments(edits, nodes["f"], added("x", "y"), 1))
    assert made.text == "f(a, x, y, b)\n"


PARAMETERS = {
    "": "r, o=None",
    "a": "a, r, o=None",
    "a, b=1": "a, r, b=1, o=None",
    "b=1": "r, b=1, o=None",
    "*, k": "r, o=None, *, k",
    "a, *, k=1, **m": "a, r, o=None, *, k=1, **m",
    "\n    a: int,  # why\n    b: str = '',\n": "\n    a: int, r,  # why\n    b: str = '', o=None,\n",
}


@pytest.mark.parametrize(("before", "after"), PARAMETERS.items())
def test_parameters(before, after):
    made = changed(
        f"def f({before}):\n    return 1\n",
        lambda edits, nodes: add_parameters(edits, edits.find(nodes["f"]), added("r"), added("o=None")),
    )
    assert made.text == f"def f({after}):\n    return 1\n"


STATEMENTS: list[tuple[str, Change, str]] = [
    (
        "\n# above\npoint()  # beside\nrest()\n",
        lambda edits, nodes: edits.put(nodes["point;"], lines(edits, "new()", "other()")),
        "# above\nnew()\nother()\nrest()\n",
    ),
    (
        "if a:\n    # above\n    point()\nrest()\n",
        lambda edits, nodes: edits.put(nodes["point;"], []),
        "if a:\n    # above\n    pass\nrest()\n",
    ),
    (
        "first()\n\n# above\npoint()\n\n# of the rest\nrest()\n",
        lambda edits, nodes: edits.put(nodes["point;"], []),
        "first()\n\n# above\n\n# of the rest\nrest()\n",
    ),
    (
        "first()\n# above\npoint()\nrest()\n",
        lambda edits, nodes: edits.drop(nodes["point;"]),
        "first()\nrest()\n",
    ),
    (
        "first()\n\n# right above\nrest()\n",
        lambda edits, nodes: edits.put_above(nodes["rest;"], lines(edits, "new()", "other()")),
        "first()\n\nnew()\nother()\n# right above\nrest()\n",
    ),
    (
        "if a:\n    rest()  # beside\n",
        lambda edits, nodes: edits.put_below(nodes["rest;"], lines(edits, "new()")),
        "if a:\n    rest()  # beside\n    new()\n",
    ),
    (
        "x = [f(y)]\n",
        lambda edits, nodes: edits.replace(nodes["f"], "a + b"),
        "x = [a + b]\n",
    ),
    (
        "x = (f(y)).z\n",
        lambda edits, nodes: edits.replace(nodes["f"], "a + b"),
        "x = (a + b).z\n",
    ),
    (
        "x = (f(y))\n",
        lambda edits, nodes: edits.change(nodes["f"], lambda call: first_item(edits, call, CAUSE)),
        "x = (f(y)[0])\n",
    ),
    (
        "def g():\n    return a, b  # why\n",
        lambda edits, nodes: edits.change(
            edits.find(nodes["return"]).body[0],
            lambda node: node.with_changes(value=beside(edits, node.value, ["c", "(d, e)"], CAUSE)),
        ),
        "def g():\n    return (a, b), c, (d, e)  # why\n",
    ),
    (
        "scan(f, x, layers)\n",
        lambda edits, nodes: edits.change(
            edits.find(nodes["scan"]).args[2],
            lambda node: node.with_changes(value=packed(edits, node.value, ["cache"], CAUSE)),
        ),
        "scan(f, x, (layers, cache))\n",
    ),
]


@pytest.mark.parametrize(("before", "change", "after"), STATEMENTS)
def test_changes(before, change, after):
    assert changed(before, change).text == after


def test_changes_in_each_other():
    """A change gets what it changes with the changes in that."""

    def change(edits: Edits, nodes: dict[str, ast.AST]) -> None:
        add_arguments(edits, nodes["g"], added("2"))
        edits.rename(nodes["f"].func, "f", "other")
        add_arguments(edits, nodes["f"], added("1"))

    assert changed("x = f(g(a), b)\n", change).text == "x = other(g(a, 2), b, 1)\n"


def test_origins():
    """What stays, moves or changes keeps its line; what is new has the line that caused it."""

    def change(edits: Edits, nodes: dict[str, ast.AST]) -> None:
        edits.put(nodes["point;"], edits.copy(Traced.copy("    y = g(\n        a)\n", "splice.py", 4)))
        add_arguments(edits, nodes["f"], added("b"))

    made = changed("x = 1\nif x:\n  point()\nz = f(\n  a)\n", change)
    assert [(piece.text, str(piece.origin)) for piece in made.pieces] == [
        ("x = 1\nif x:\n", "host.py:1"),
        ("  y = g(\n      a)\n", "splice.py:4"),
        ("z = f(\n  a", "host.py:4"),
        (", b", "cause.py:9"),
        (")\n", "host.py:5"),
    ]


def test_lines_that_stay_move_with_what_is_around_them():
    def change(edits: Edits, nodes: dict[str, ast.AST]) -> None:
        edits.put(nodes["point;"], lines(edits, "new()"))
        edits.put(edits.source.statements[0], lambda node: node.body.body)

    made = changed("if a:\n    for x in y:\n        s = '''b\n  c'''  # d\n        point()\n", change)
    assert made.text == "for x in y:\n    s = '''b\n  c'''  # d\n    new()\n"
    assert [piece.origin for piece in made.pieces] == [Origin("host.py", 2), CAUSE]


def test_without_changes_the_text_is_the_same_object():
    source = TracedTree(Traced.copy("x  =  1\n", "a.py"))
    assert Edits(source).made() is source.traced


def test_what_cannot_be_found_is_an_error_that_says_where():
    source = TracedTree(Traced.copy("x = 1\ny = ()\n", "a.py"))
    (empty,) = (node for node in walk(source.module) if isinstance(node, ast.Tuple))
    with pytest.raises(LoomError, match="cannot be changed where it stands") as caught:
        Edits(source).replace(empty, "1")
    assert caught.value.where == "a.py:2"
