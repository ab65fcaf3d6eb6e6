"""Programs are woven correctly or refused: each form of a call by itself, and programs made up at random.

Woven programs are run, and compared with an interpreter that weaves nothing: there a value is a global, which each
function that provides it sets while it runs, and a point is a statement that reads it. RANDOM_PROGRAMS=500 tries that
many.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from miniature import operate
from random_programs import FUNCTION, INSTANCE, SHAPES, features_of, host_of, programs
from test_layers import MODEL, model

from generator.errors import LoomError

EXAMPLES = int(os.environ.get("RANDOM_PROGRAMS", "60"))
common = settings(deadline=None, derandomize=True, max_examples=EXAMPLES)
outcomes: Counter[str] = Counter()


def _scan(f, carry, xs):
    ys = []
    for x in xs:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, ys


def _same(f, *_, **__):
    return f


def _each(f, *xs):
    return f(*xs)


def _grad(f, argnums=0):
    """Stands for the gradient: another number for another argument that it is of."""
    return lambda *args, **kwargs: f(*args, **kwargs) * 5 + (*args, *kwargs.values())[argnums]


JAX = SimpleNamespace(
    grad=_grad,
    **dict.fromkeys(("jit", "checkpoint", "vmap"), _same),
    lax=SimpleNamespace(scan=_scan, cond=lambda test, one, other, x: one(x) if test else other(x)),
    tree=SimpleNamespace(map=_each),
)


def flat(aux) -> int:
    return sum(map(flat, aux)) if isinstance(aux, (list, tuple)) else aux


def meaning(program: dict, x: int) -> int:
    """Returns what the program gives, found without weaving."""
    text, stack, emitted = host_of(program), [], []
    for number, node in enumerate(program["nodes"]):
        read = "x = x + stack[-1]" if node["reads"] else "pass"
        read += "; emitted.append(x * 2)" if program["emits"] == number else ""
        text = text.replace(f'point("at{number}", x)', read)
        if node["provides"]:
            head = (
                f"def __call__(self, x, y=1):\n        {read}"
                if node["class"]
                else f"def f{number}(x, y=1):\n    {read}"
            )
            assert head in text
            mark = "        " if node["class"] else "    "
            text = text.replace(
                head, head.replace(f"{mark}{read}", f"{mark}stack.append({node['made']})\n{mark}{read}")
            )
            if node["class"]:
                text = text.replace(f"class C{number}:", f"@leaving_class\nclass C{number}:")
            else:
                text = text.replace(f"def f{number}(", f"@leaving\ndef f{number}(")
    text = text.replace('point("end", total)', "total = total + sum(emitted)" if program["emits"] else "pass")

    def leaving(function):
        def wrapped(*args, **kwargs):
            depth = len(stack)
            try:
                return function(*args, **kwargs)
            finally:
                del stack[depth:]

        return wrapped

    def leaving_class(kind):
        kind.__call__ = leaving(kind.__call__)
        return kind

    names = {"stack": stack, "emitted": emitted, "leaving": leaving, "leaving_class": leaving_class}
    return run(text, names)["f0"](x)


def run(text: str, names: dict) -> dict:
    names |= {"jax": JAX, "functools": functools, "quiet": contextlib.nullcontext, "flat": flat}
    lines = [line for line in text.split("\n") if not line.startswith(("import jax", "from generator"))]
    exec("\n".join(lines), names)
    return names


def outcome(program: dict) -> str:
    """Returns `woven` or the message of the error. What is woven gives what the program means."""
    try:
        texts = operate(host=host_of(program), features=features_of(program))
    except LoomError as error:
        assert error.where and error.remedy
        return error.message
    woven = "\n".join(text.text for text in texts.values())
    for x in (1, 50):
        try:
            expected = meaning(program, x)
        except (TypeError, NameError):  # it does not run by itself, where a name is shadowed before it is bound
            return "does not run"
        assert run(woven, {})["f0"](x) == expected, woven
    return "woven"


@common
@given(programs())
def test_threaded_or_refused(program):
    result = outcome(program)
    if result == "does not run":
        reject()
    outcomes[re.sub(r"\S*\d\S*|'.*?'", "_", result)] += 1


NODE = {"class": False, "reads": True, "provides": False, "made": "x * 7", "recursive": False, "calls": []}
CALLS = {False: "{f}({x})", True: "{i}({x})"}
FORMS = [(False, form, SHAPES[0]) for form in FUNCTION] + [(True, form, SHAPES[0]) for form in INSTANCE]


@pytest.mark.parametrize(
    ("is_class", "form", "shape"), [*FORMS, *((kind, CALLS[kind], shape) for shape in SHAPES for kind in CALLS)]
)
def test_each_form(is_class, form, shape):
    """Function 2 calls 1, which reads p, in this form; 0 provides p, and calls both as well as a method of 1."""
    forms = [(1, CALLS[is_class]), (2, CALLS[False])] + [(1, "{i}.act({x})")] * is_class
    first = {**NODE, "calls": [(k, f, f, SHAPES[0], False, "held") for k, f in forms], "provides": True, "reads": False}
    last = {**NODE, "calls": [(1, form, form, shape, False, "held")], "reads": False}
    result = outcome({"nodes": [first, {**NODE, "class": is_class}, last], "emits": None})
    if form in (*FUNCTION[:8], *INSTANCE[:6]) and shape in SHAPES[:5]:
        assert result == "woven"
    else:
        reasons = "woven|does not run|threading cannot follow|uses the name for something else|must be passed"
        assert re.search(reasons, result), result


def test_enough_of_them_are_woven():
    """Refusing everything is no way to be right. Counted over the examples of the test above, in this process."""
    if not outcomes:
        pytest.skip("the programs ran in another process")
    assert outcomes["woven"] >= 0.15 * sum(outcomes.values()), outcomes


names = st.sampled_from(["mask", "use", "Scale", "Attention", "x", "block"])
TWO = """
    [[layers]]
    name = "one"
    pattern = ["one"]
    count = "1"
    [[layers]]
    pattern = ["two"]
    count = "1"
    [kinds.one]
    fragments = ["model/one_"]
    [kinds.two]
    fragments = ["model/two_"]
"""


@st.composite
def blocks(draw) -> dict[str, str]:
    """A Block whose functions and classes are called like one another's parameters, variables and attributes."""
    defined = draw(st.lists(st.sampled_from(["mask", "use", "Scale", "Attention"]), min_size=1, unique=True))
    text, points = "from generator.language import point\n\nclass Config:\n    layers: int = 2  # in all\n\n", []
    for place, name in enumerate(defined):
        called = draw(st.sampled_from(defined[:place])) if place else ""
        other, local = draw(names), draw(names)
        value = draw(st.sampled_from(["v", f"[{local} for {local} in [v]][0]", f"(lambda {local}: {local})(v)"]))
        given = draw(st.sampled_from(["{c}({v})", "{c}(v={v})", "{c}({v}, 2)", "(lambda f: f)({c})({v})"]))
        default = draw(st.sampled_from([f"{other}=1", f"{other}: '{called or 'int'}' = 1", f"*, {other}=1"]))
        hidden = other if other in defined else ""  # the parameter hides what has its name
        call = given.format(c=called, v=value) if called and called != hidden else value
        call = call.replace(", 2)", f", {other}=2)") if "*" in default or called not in defined else call
        points.append(f"{name}.at")
        body = [
            f'point("{name}.at", v)',
            f"v = {value} * {place + 2}",
            f"return {call} + {other} * 0 + (0 if {other} else 1)",
        ]
        if name[0].isupper():
            text += f"class {name}:\n    {local} = {place}\n\n    def __new__(cls, v, {default}):\n        "
            text += "\n        ".join(body) + "\n\n"
        else:
            text += f"def {name}(v, {default}):\n    " + "\n    ".join(body) + "\n\n"
    last = defined[-1]
    text += (
        "class Block:\n    def __init__(self, config, size):\n        self.mask = size\n\n    def __call__(self, x):\n"
    )
    text += f"        use_it = {last}(x)\n        point('Block.at', use_it)\n        return use_it + self.mask * 0\n"
    splice = "from generator.language import splice\n\n@splice({!r})\ndef _({}):\n    {} = {} * 10 + {}\n"
    kinds = {}
    for kind, number in (("one_", 3), ("two_", 4)):
        at = draw(st.sampled_from([*points, "Block.at"]))
        name = "use_it" if at == "Block.at" else "v"
        kinds[kind] = splice.format(at, name, name, name, number)
    return {"block": text, **kinds}


@common
@given(blocks())
def test_kinds_compute_what_each_computes_alone(texts):
    """The layers of two kinds are those of two packages with one kind each."""
    common = {"block": texts["block"], "model": MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")}

    class Config:
        layers = 2

    def woven(architecture: str, *kinds: str) -> dict:
        names: dict = {}
        exec(model(architecture, **common, **{f"{kind}_": texts[f"{kind}_"] for kind in kinds}), names)
        return names

    def alone(kind: str) -> int:
        own = f'[[layers]]\npattern = ["{kind}"]\n[kinds.{kind}]\nfragments = ["model/{kind}_"]\n'
        return woven(own, kind)["Block"](None, 2)

    try:
        one, two = alone("one"), alone("two")
        expected = two(one(5))
        both = woven(TWO, "one", "two")
    except LoomError as error:
        assert error.where and error.remedy
    except TypeError:  # a program that does not run by itself
        reject()
    else:
        assert both["model"](Config)[0](5) == expected
