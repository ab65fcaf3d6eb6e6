"""What holds for the operators whatever the fragments: properties, tried on programs made up at random."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from miniature import PACKAGE, operate, package, run

from generator.code.traced import Traced
from generator.errors import LoomError
from generator.weave.fill import fill

common = settings(deadline=None, derandomize=True, max_examples=30)
numbers = st.integers(-3, 3)


def unformatted(**texts: str) -> str:
    return "".join(text.text for text in operate(**texts).values())


class TestSplices:
    """Splices see what their parameters name, and nothing of theirs is seen."""

    @common
    @given(st.permutations(range(5)), st.permutations(range(5)))
    def test_a_declared_order_outweighs_that_of_selection(self, declared, selected):
        """Fragment i comes after the one before it in `declared`, however they are selected."""
        texts = {}
        for place, number in enumerate(declared):
            after = f', after="s{declared[place - 1]}"' if place else ""
            texts[f"s{number}"] = f'@splice("p"{after})\ndef _(x):\n    x = x * 10 + {number}\n'
        text = unformatted(
            host='def f(x):\n    point("p", x)\n    return x\n', **{f"s{n}": texts[f"s{n}"] for n in selected}
        )
        assert run(text)["f"](0) == int("".join(map(str, declared)))

    statements = st.tuples(
        st.sampled_from("awxyz"),
        st.sampled_from("awxyz"),
        st.sampled_from(["{t} = {r} + 1", "{t} = sum([{t} for {t} in [{r}, 2]])", "{t} = (lambda {t}: {t} * 2)({r})"]),
    )

    @common
    @given(st.lists(st.lists(statements, max_size=5), min_size=1, max_size=3))
    def test_names_are_never_captured(self, bodies):
        """The host has the variables a and b; each splice binds what it likes but a, and shares x alone."""
        splices, expected = {}, 1
        for number, body in enumerate(bodies):
            known, lines = {"x"}, []
            for target, read, form in body:
                lines.append(form.format(t=target, r=read if read in known else "x"))
                known.add(target)
            source = "".join(f"    {line}\n" for line in [*lines, "x = " + " + ".join(sorted(known))])
            after = f', after="s{number - 1}"' if number else ""
            splices[f"s{number}"] = f'@splice("p"{after})\ndef _(x):\n{source}'
            names: dict = {}
            exec(f"def own(x):\n{source}    return x\n", names)
            expected = names["own"](expected)
        host = 'def f(x):\n    a, b = 10, [w for w in range(3)]\n    point("p", x)\n    return a, b, x\n'
        if any(target == "a" for body in bodies for target, _, _ in body):
            with pytest.raises(LoomError, match="binds a, which is also a name in the host"):
                unformatted(host=host, **splices)
        else:
            assert run(unformatted(host=host, **splices))["f"](1) == (10, [0, 1, 2], expected)


@dataclass
class Node:
    """A function of a random program: it adds up what its calls give, and what its splices read."""

    calls: list[int]
    reads: set[str]
    provides: set[str]
    is_class: bool
    default: bool


@st.composite
def programs(draw) -> list[Node]:
    size = draw(st.integers(2, 7))
    nodes = []
    for number in range(size):
        subset = st.sets(st.sampled_from(["p", "q"]))
        calls = draw(st.lists(st.integers(number + 1, size - 1), max_size=3)) if number < size - 1 else []
        provides = {"p", "q"} if number == 0 else draw(subset) if draw(st.booleans()) else set()
        nodes.append(Node(calls, draw(subset), provides, draw(st.booleans()) and number > 0, draw(st.booleans())))
    for number in range(1, size):  # everybody is called by somebody
        if not any(number in node.calls for node in nodes):
            nodes[draw(st.integers(0, number - 1))].calls.append(number)
    return nodes


def definition(number: int, node: Node, nodes: list[Node]) -> str:
    lines = [f'point("at{number}", x)', "total = x"]
    for place, called in enumerate(node.calls):
        arguments = f"x + {place}" + (", 5" if nodes[called].default and place % 2 else "")
        if nodes[called].is_class:
            lines += [f"c{place}: C{called} = C{called}()", f"total = total * 3 + c{place}({arguments})"]
        else:
            lines.append(f"total = total * 3 + f{called}({arguments})")
    body = "".join(f"    {line}\n" for line in [*lines, "return total" + (" + y" if node.default else "")])
    parameters = "x, y=1" if node.default else "x"
    if not node.is_class:
        return f"def f{number}({parameters}):\n{body}\n"
    return f"class C{number}:\n" + indent(f"def __call__(self, {parameters}):\n{body}", "    ") + "\n"


def fragments_of(nodes: list[Node]) -> dict[str, str]:
    values = ""
    for number, node in enumerate(nodes):
        site = f"C{number}.__call__" if node.is_class else f"f{number}"
        for value in sorted(node.provides):
            values += f'@provide("{site}")\ndef {value}(x):\n    return x * {7 if value == "p" else 11} + {number}\n\n'
        for value in sorted(node.reads):
            values += f'@splice("at{number}", optional=True)\ndef _(x, {value}):\n    x = x + {value}\n\n'
    return {"host": "".join(definition(n, node, nodes) for n, node in enumerate(nodes)), "values": values}


def interpret(nodes: list[Node], number: int, x: int, y: int, values: dict[str, int]) -> int:
    """What the program means: a value is that of the nearest function on the way in that provides it."""
    node = nodes[number]
    values = values | {v: x * (7 if v == "p" else 11) + number for v in node.provides}
    x += sum(values[v] for v in node.reads)
    total = x
    for place, called in enumerate(node.calls):
        total = total * 3 + interpret(nodes, called, x + place, 5 if nodes[called].default and place % 2 else 1, values)
    return total + (y if node.default else 0)


def takers(nodes: list[Node], value: str) -> set[int]:
    """The functions that cannot do without a value from their callers."""
    found: set[int] = set()
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if value not in node.provides and (value in node.reads or found & set(node.calls)):
            found.add(number)
    return found


class TestThreading:
    """A threaded program computes what its values mean, and differs where it has to."""

    @common
    @given(programs(), numbers)
    def test_value(self, nodes, x):
        assert run(unformatted(**fragments_of(nodes)))["f0"](x) == interpret(nodes, 0, x, 1, {})

    @common
    @given(programs())
    def test_functions_on_the_way_and_only_those_change(self, nodes):
        parts = fragments_of(nodes)
        bare = {name: text for name, text in parts.items() if name == "host"}
        before, after = ([text.text for text in operate(**texts).values()] for texts in (bare, parts))
        taking = {value: takers(nodes, value) for value in "pq"}
        for number, node in enumerate(nodes):
            takes = any(number in taking[value] for value in "pq")
            passes = any(taking[value] & set(node.calls) for value in "pq")
            assert (before[number] != after[number]) == bool(takes or passes or node.reads)
            head = after[number].split("def ")[1].split(":")[0]
            assert {v for v in "pq" if v in head.split("(")[1]} == {v for v in "pq" if number in taking[v]}

    @common
    @given(st.lists(st.tuples(st.sampled_from(["one", "pair", "list"]), st.booleans()), min_size=1, max_size=5))
    def test_outward_through_any_results(self, levels):
        """Each level gives one value, a pair or a list, taken apart by its caller or not; the last one's aux arrives."""
        host = f'def f{len(levels)}(x):\n    point("in", x)\n    return x\n\n'
        kinds = [*levels, ("one", False)]
        for number in reversed(range(len(levels))):
            kind, apart = kinds[number + 1]
            target, use = ("y", "y") if kind == "one" else ("y, z", "y") if apart else ("y", "y[0]")
            result = {"one": f"{use} + 1", "pair": f"{use} + 1, 9", "list": f"[{use} + 1, 9]"}[kinds[number][0]]
            end = '    point("out", y)\n' if number == 0 else ""
            host += f"def f{number}(x):\n    {target} = f{number + 1}(x)\n{end}    return {result}\n\n"
        aux = (
            '@splice("in")\ndef _(x):\n    aux = x * 100\n    emit(aux)\n\n'
            '@splice("out")\ndef _(y, aux):\n    seen.append(aux)\n'
        )
        names = run(unformatted(host=host, aux=aux, seen="seen = []\n"))
        plain = run(unformatted(host=host))
        assert names["f0"](3) == plain["f0"](3)
        assert names["seen"] == [300]


tests = st.recursive(
    st.sampled_from(
        [
            'setting("on")',
            'setting("off")',
            'setting("n") > 2',
            'setting("s") in ["a", "b"]',
            'setting("n") == 3',
            "True",
        ]
    ),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=4,
)
SETTINGS = {"on": True, "off": False, "n": 3, "s": "a"}


class TestFill:
    """Filling decides as Python would, and once is enough."""

    @common
    @given(st.lists(tests, min_size=1, max_size=4))
    def test_branches(self, conditions):
        lines = ["def f():"]
        for number, condition in enumerate(conditions):
            lines += [f"    {'elif' if number else 'if'} {condition}:", f"        return {number}, {condition}"]
        text = Traced.copy("\n".join([*lines, "    return None\n"]), "p")
        filled = fill(text, SETTINGS)
        assert "setting" not in filled.text
        assert fill(filled, SETTINGS) == filled
        assert run(filled.text)["f"]() == run(f"def setting(n):\n    return {SETTINGS}[n]\n" + text.text)["f"]()


class TestLinking:
    """What is reached is there, what is not is absent, in whatever order it was written."""

    @common
    @given(st.lists(st.sets(st.integers(0, 7)), min_size=8, max_size=8), st.permutations(range(8)), st.data())
    def test_reached(self, uses, order, data):
        parts = {n: f"def g{n}():\n    return [{', '.join(f'g{m}' for m in sorted(uses[n]))}]\n" for n in range(8)}
        cut = data.draw(st.integers(1, 7))
        shuffled = {
            "model/one": "".join(parts[n] for n in order[:cut]),
            "model/two": "".join(parts[n] for n in order[cut:]),
        }
        reached, queue = {0}, [0]
        while queue:
            new = uses[queue.pop()] - reached
            reached |= new
            queue += new
        text = package(shuffled, package=PACKAGE.replace('["model"]', '["g0"]')).files["model.py"]
        assert {n for n in range(8) if f"def g{n}():" in text} == reached
        assert run("__name__ = 'x'\n" + text)["g0"]
        for n in reached:
            assert f"{parts[n]}" in text
