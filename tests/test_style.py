"""Fragments and packages assign together what belongs together, and hide no effect in an expression."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import style

ROOT = Path(__file__).resolve().parents[1]
UNLIKE = """
rows, table = len(a), load(b)
name, count = "x", 0
first, second, third = f(a), f(b), g(c)
size, text = config.size, request.text
self.rate, self.files = rate, []
width, depth = config.width, len(layers)
a, b = x[0], x.shape[1]
total, least = a + b, c - d
"""
RELATED = """
rows, columns = len(a), len(b)
q, k = rotate(q), rotate(k)
q, k = self.query_norm(q), self.key_norm(k)
start, stop = 0, n
a, b = b, a
a, b = f(b), g(a)
before, self.clock = self.clock, time()
path, size = content.path, content.size
one, two = x.shape[0], y.shape[0]
sin, cos = jnp.sin(x)[:, None], jnp.cos(x)[:, None]
known, seen = {}, set()
low, high = -1, 2
mean, both = sum(x), -sum(y)
(B, T, D), V = x.shape, len(tokens)
left, right = a + b, c + b
key, value = pair
a, b = f(x)
"""
HIDDEN = """
seen or seen.add(x)
x in seen and calls.append(x)
x = read.append(text) or text
f(lambda x: read.append(x) or x)
f"{rows.pop()} is left"
rows = [x for x in y if not seen.add(x)]
run = lambda x: (steps.append(x), step(x))[1]
x = options.pop("a") if sampled else 0
[print(x) for x in y]
any(f(x) for x in y)
list(map(print, y))
f(x) if x else g(x)
f(x) == g(y)
rows[0]
"""
PLAIN = """
x.setdefault("a", []).append(1)
x = rows.pop()
f(rows.pop())
callback(lambda x: rows.append(x))
x = y or read(text)
grown = x.at[i].add(1) if x.ndim else x
rows = [block.pop(i) for i in places]
list(documents)
await f(x)
"a docstring"
...
"""


def faults(text: str) -> list[str]:
    return [f"{line}: {what}" for line, what in style.find_faults(ast.parse(text))]


@pytest.mark.parametrize("statement", [*filter(None, (UNLIKE + HIDDEN).split("\n"))])
def test_each_kind_of_fault_is_found(statement):
    assert faults(statement) and faults(f"def f():\n    for x in y:\n        {statement}")


@pytest.mark.parametrize("text", [RELATED, PLAIN])
def test_what_is_plain_is_not_reported(text):
    assert not faults(text)


@pytest.mark.parametrize("folder", ["fragments", "generated"])
def test_fragments_and_packages_have_none(folder):
    paths = [*(ROOT / folder).rglob("*.py")]
    assert len(paths) > 200
    found = [f"{path.relative_to(ROOT)}:{fault}" for path in paths for fault in faults(path.read_text())]
    assert not found, "\n".join(found)
