"""Bytecode of changed modules, and the changed definitions that traced programs do not cover."""

from __future__ import annotations

import ast
import itertools
import random

import pytest

from generator.programs.recording import instrument, recorded
from generator.programs.sources import find_host_changes, functions_of, is_same_code

# a statement moves to another block; all statements and their order stay
MOVED = {
    "out of an if": ("if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
    "into an else": ("if a:\n    b()\n    c()\n", "if a:\n    b()\nelse:\n    c()\n"),
    "out of a loop": ("for a in b:\n    c()\n    d()\n", "for a in b:\n    c()\nd()\n"),
    "out of a try": (
        "try:\n    a()\n    b()\nexcept E:\n    c()\n",
        "try:\n    a()\nexcept E:\n    c()\nelse:\n    b()\n",
    ),
    "into a finally": ("try:\n    a()\nexcept E:\n    b()\n", "try:\n    a()\nfinally:\n    b()\n"),
    "out of a with": ("with a:\n    b()\n    c()\n", "with a:\n    b()\nc()\n"),
}
SAME = {
    "comment": ("def f(x):\n    return x\n", "def f(x):\n    return x  # as it is\n"),
    "docstring": ('def f(x):\n    "One."\n    return x\n', 'def f(x):\n    "Two."\n    return x\n'),
    "local": ("def f(x):\n    y = x\n    return y\n", "def f(x):\n    z = x\n    return z\n"),
    "local that an inner function reads": (
        "def f(x):\n    y = x\n    return lambda: y\n",
        "def f(x):\n    z = x\n    return lambda: z\n",
    ),
}
F = "def f(x):\n    return x\n"
# before, after, and the host changes if all functions were traced
CHANGED = [
    (F, "def f(x):\n    return x + 1\n", []),
    (F, "def f(y):\n    return y\n", []),  # a parameter has a name for its callers, who would have changed
    (F, "def f(x=1):\n    return x\n", ["f"]),
    (F, "@a\ndef f(x):\n    return x\n", ["f"]),
    (F, "def f(x):\n    x.y = 1\n    return x\n", ["f"]),
    (F, "def f(x):\n    x[0] = 1\n    return x\n", ["f"]),
    (F, "def f(x):\n    return x if platform else 0\n", ["f"]),
    (F, "def f(x):\n    global y\n    y = x\n", ["f"]),
    (f"import os\n{F}", "import os\ndef f(x):\n    os.system('')\n    return x\n", ["f"]),
    (f"import jax\n{F}", "import jax\ndef f(x):\n    return (x, 2 * x)[jax.local_device_count() > 8]\n", ["f"]),
    (f"import jax\n{F}", "import jax\ndef f(x):\n    return jax.nn.silu(x)\n", []),
    (
        f"from jax import threefry_partitionable\n{F}",
        "from jax import threefry_partitionable\ndef f(x):\n    with threefry_partitionable(False):\n        return x\n",
        ["f"],
    ),
    (F, "def f(x):\n    import time\n    return x * time.time()\n", ["f"]),
    (f"import numpy as np\n{F}", "import numpy as np\ndef f(x):\n    return x * np.random.rand()\n", ["f"]),
    (F, "def f(x):\n    print(x)\n    return x\n", ["f"]),
    (f"seen = []\n{F}", "seen = []\ndef f(x):\n    seen.append(x)\n    return x\n", ["f"]),
    (
        f"import os\ndef g():\n    return os.getpid()\n{F}",
        "import os\ndef g():\n    return os.getpid()\ndef f(x):\n    return x * g()\n",
        ["f"],
    ),
    (F, f"{F}def g(x):\n    return f(x)\n", []),
    (F, f"{F}limit = 1\n", ["limit"]),
    (F, f"{F}f.name = 1\n", ["f.name"]),
    (F, f"{F}f(1)\n", ["the module"]),
    (F, f"{F}class A(B):\n    def g(self):\n        return 1\n", []),
    (F, f"{F}class A(B):\n    x: int = 1\n", ["A"]),
    ("class A:\n    def g(self):\n        return 1\n", "class A(B):\n    def g(self):\n        return 1\n", ["A"]),
    ("class A:\n    x: int = 1\n", "class A:\n    x: int = 2\n", ["A"]),
    (F, f"{F}def sum(x):\n    return f(x)\n", ["sum"]),
    (f"from a import g\n{F}", f"{F}def g(x):\n    return f(x)\n", ["g", "import of g"]),
    ("a += 1\n", "a += 1\na += 1\n", ["the order of statements"]),
    ("import a\n", "import a\nimport b\n", []),
    ("import a\n", "import b as a\n", ["import of a"]),
    (F, f"from b import sum\n{F}", ["import of sum"]),
    ("a = 1\nb = 2\n", "b = 2\na = 1\n", ["the order of statements"]),
]


def host_changes(before: str, after: str, traced: bool) -> list[str]:
    texts = [{"a.py": text} for text in (before, after)]
    keys = [{f"a.py:{name}" for name, _ in functions_of(ast.parse(text)) if traced} for text in (before, after)]
    return list(find_host_changes("a.py", *texts, keys))


@pytest.mark.parametrize("name", SAME)
def test_same_code(name):
    assert is_same_code(*SAME[name]) and not host_changes(*SAME[name], traced=False)


@pytest.mark.parametrize(("before", "after", "expected"), CHANGED)
def test_host_changes(before, after, expected):
    assert not is_same_code(before, after)
    assert host_changes(before, after, traced=True) == expected
    untraced = host_changes(before, after, traced=False)
    assert untraced or before == "import a\n"


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("inside", (False, True))
def test_statement_that_moves_to_another_block_is_changed(name, inside):
    before, after = (f"def f():\n{_indented(text)}" if inside else text for text in MOVED[name])
    assert not is_same_code(before, after)
    assert host_changes(before, after, traced=False)


def test_files_of_other_bytecode_have_changed_definitions():
    """In files with the same words in the same order, but other nesting."""
    draw, same_words = random.Random(7), {}
    for _ in range(8000):
        text = "".join(_block(draw, 0))
        same_words.setdefault(text.replace(" ", ""), {})[text] = None
    pairs = [
        (a, b) for texts in same_words.values() for a, b in itertools.combinations(texts, 2) if not is_same_code(a, b)
    ]
    assert len(pairs) > 100
    for before, after in pairs:
        assert host_changes(before, after, traced=False), f"{before}\n---\n{after}"


# body of a function, arguments, and whether calls with all of them run all of it
BODIES = [
    ("return x + 1", [1], True),
    ("if x > 1:\n        return 2\n    return 3", [1, 2], True),
    ("if x > 1:\n        return 2\n    return 3", [2], False),
    ("if x > 0:\n        x = 2\n    return x", [1, 2], False),
    ("if x < 0:\n        raise ValueError\n    return x", [1, 2], False),
    ("assert x\n    return x", [1, 2], False),
    ("return 1 if x else 2", [0, 1], True),
    ("return 1 if x else 2", [1], False),
    ("return x or 2", [0, 1], True),
    ("return x or 2", [0], False),
    ("return 0 < x < 2", [1, 3], True),
    ("return 0 < x < 2", [-1], False),
    ("return [y for y in range(x)]", [1], True),
    ("return [y for y in range(x)]", [0], False),
    ("return [y for y in range(x) if y]", [1], False),
    ("return (lambda: x)()", [1], True),
    ("return (lambda: x) and 1", [1], False),
    ("for y in range(x):\n        y += 1\n    return y if x else x", [0, 1], True),
    ("for y in range(x):\n        y += 1\n    return x", [0], False),
    ("try:\n        return 1 // x\n    except ZeroDivisionError:\n        return 0", [1], False),
    ("def g():\n        return x\n    return g", [1], False),
]


@pytest.mark.parametrize(("body", "arguments", "whole"), BODIES)
def test_function_that_ran_as_a_whole(body, arguments, whole, tmp_path):
    (tmp_path / "a.py").write_text(f'"""A module."""\n\ndef f(x):\n    """A function."""\n    {body}\n')
    recorded.clear()
    ((name, places),) = instrument(tmp_path).items()
    scope: dict = {}
    exec((tmp_path / "a.py").read_text(), scope)
    for argument in arguments:
        scope["f"](argument)
    assert (name, places <= recorded) == ("a.py:f", whole)


def _block(draw: random.Random, depth: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw.randint(1, 2)):
        if depth == 3 or draw.random() < 0.5:
            lines.append("a()\n")
            continue
        heads = draw.choice([("if a:",), ("if a:", "else:"), ("for b in a:",), ("try:", "finally:"), ("def f():",)])
        for head in heads:
            lines += [f"{head}\n", *("    " + line for line in _block(draw, depth + 1))]
    return lines


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
