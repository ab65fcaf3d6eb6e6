"""Names are what Python's rules of scope say, not how they are spelled."""

from __future__ import annotations

import builtins
import symtable

import pytest
from miniature import definition, run
from test_layers import BLOCK, MODEL, OFFSET, PATTERN, PERIOD, PLAIN, WINDOW, model, sizes

from generator.code.bindings import free_names, scopes_of
from generator.code.edits import Edits
from generator.code.renaming import rename
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree

BLOCK = BLOCK.replace(
    "# in all", "# in all\n        dense_layers: int = 1  # of them\n        layers_each: int = 1  # of nothing"
)
GROUPS = """
    [[layers]]
    name = "dense"
    pattern = ["dense"]
    count = "config.dense_layers"
    [[layers]]
    pattern = ["sparse"]
    count = "config.layers - config.dense_layers"
    [kinds.dense]
    [kinds.sparse]
    fragments = ["model/offset_"]
"""
TEXTS = {
    "a comprehension": "def f(x):\n    return [x for x in x] + [y for y in x]\n",
    "a walrus in one": "def f(x):\n    return [(y := z) for z in x], y, z\n",
    "a lambda and its default": "def f(x):\n    return lambda x, y=x: (x, y, z)\n",
    "a class body": "class A:\n    x = 1\n    y = x\n    def f(self, z=x):\n        return x, z\n",
    "a nested function": "def f(x):\n    def g(y):\n        return x, y, z\n    return g\n",
    "nonlocal": "def f(x):\n    def g():\n        nonlocal x\n        x = 1\n    return g\n",
    "global": "def f():\n    global x\n    x = 1\n    return x\n",
    "imports": "def f():\n    import a.b, c as d\n    from e import g\n    return a, d, e, g\n",
    "match": "def f(x):\n    match x:\n        case [a, *b] | {'k': a, **b}:\n            return a, b\n        case C(d=e):\n"
    "            return d, e\n",
    "except and with": "def f(x):\n    try:\n        pass\n    except E as e:\n        return e\n    with x as (a, b):\n"
    "        return a, b, c\n",
    "attributes, keywords and items": "def f(x):\n    x.y = g(y=1, z=x)\n    x[i] = y\n    (a, *b), c.d = x\n    return a, b\n",
    "annotations": "def f(x: T = d) -> 'R':\n    y: U = x\n    return y\n",
    "decorators and bases": "def f(x):\n    @d(x)\n    class A(x, metaclass=m):\n        pass\n    return A\n",
    "an f-string": "def f(x):\n    return f'{x} {y:{z}} {[q for q in x]}'\n",
    "del and augmented": "def f(x):\n    x += y\n    del x\n",
}


def _globals_by_python(text: str) -> set[str]:
    found: set[str] = set()
    queue = [symtable.symtable(text, "<text>", "exec")]
    while queue:
        table = queue.pop()
        queue += table.get_children()
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            free = not (symbol.is_assigned() or symbol.is_imported()) if top else symbol.is_global()
            if free and symbol.get_name() not in {"f", "A"}:
                found.add(symbol.get_name())
    return found - set(dir(builtins))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_names_from_outside_are_those_of_pythons_own_table(text):
    scopes = scopes_of(TracedTree(Traced.copy(text, "x.py")).tree)
    outside = {it.name for it in scopes.occurrences if it.binder in (None, *[scopes.module] * ("global" in text))}
    assert outside - set(dir(builtins)) - {"f", "A"} == _globals_by_python(text)
    assert {*free_names(text)} - set(dir(builtins)) - {"f", "A"} <= _globals_by_python(text) | {"R"}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_each_name_stands_where_the_tree_says(text):
    """Above the names, letters that are wider in UTF-8 than in the text."""
    text = f"'\u00e9\u00df'; é = 1\n{text}".replace("return ", "'\u00e9'; return ")
    source = TracedTree(Traced.copy(text, "x.py"))
    edits = Edits(source)
    occurrences = scopes_of(source.tree).occurrences
    for found in occurrences:
        edits.rename(found.node, found.name, f"{found.name}_")
    new = edits.made().text
    renamed = scopes_of(TracedTree(Traced.copy(new, "x.py")).tree).occurrences
    assert [use.name for use in renamed] == [f"{use.name}_" for use in occurrences]
    assert new.replace("_", "") == text


def test_equal_texts_share_a_tree_and_keep_their_origins():
    one, other = (TracedTree(Traced.insert("x = 1\n", Origin(path, 7))) for path in ("one.py", "other.py"))
    assert one.module is other.module
    assert (one.where(one.module.body[0]), other.where(other.module.body[0])) == ("one.py:7", "other.py:7")


def test_a_name_from_outside_is_renamed_where_it_is_meant_and_nowhere_else():
    text = (
        "def f(a: 'mask | None', b: mask = mask):\n    def g(mask):\n        return mask\n"
        "    return x.mask, g(mask=mask), [mask for mask in b], mask\n"
    )
    edits = Edits(TracedTree(Traced.copy(text, "x.py")))
    rename(edits, {"mask": "local_mask"}.get)
    assert edits.made().text == (
        "def f(a: 'local_mask | None', b: local_mask = local_mask):\n    def g(mask):\n        return mask\n"
        "    return x.mask, g(mask=local_mask), [mask for mask in b], local_mask\n"
    )


class TestKinds:
    """What is given a kind's name: definitions, wherever they are meant."""

    def test_a_parameter_of_the_same_name_stays(self):
        block = BLOCK.replace(
            "x = self.scale * x",
            "x = use(self.scale * x, mask=mask(x))",
        ).replace("class Attention:", MASKS + "    class Attention:")
        masked = OFFSET.replace("Attention.mixed", "mask.value").replace("x + 100", "x + 1")
        names = run(model(GROUPS, block=block, model=PLAIN, offset_=masked))

        # dense: 1 * 1 + 1; sparse, whose mask is one more: 2 * 1 + 3
        assert names["model"](sizes(layers=2, dense_layers=1))[0](1) == 5

    def test_annotations_in_quotes(self):
        block = BLOCK.replace(
            "class Block:", "def last(block: 'Block', x):\n        return block(x)\n\n    class Block:"
        ).replace("self.attention = Attention(", "self.last = last\n            self.attention = Attention(")
        text = model(GROUPS, block=block, model=PLAIN, offset_=OFFSET)
        assert '"DenseBlock"' in definition(text, "dense_last") and '"SparseBlock"' in definition(text, "sparse_last")


MASKS = """def mask(x):
        point("mask.value", x)
        return x

    def use(x, mask=None):
        return x + mask

"""


class TestLayers:
    """What `for group in layers.groups:` and its like replace: whole expressions."""

    def woven(self, statement: str) -> str:
        host = PLAIN.replace(
            "group.stack = group.Block(config, group.count)",
            f"group.stack = group.Block(config, 0)\n                {statement}",
        )
        return definition(model(GROUPS, block=BLOCK, model=host, offset_=OFFSET), "Model")

    @pytest.mark.parametrize(
        ("statement", "dense", "sparse"),
        [
            ("a = 2 * group.count", "2 * config.dense_layers", "2 * (config.layers - config.dense_layers)"),
            ("a = -group.count", "-config.dense_layers", "-(config.layers - config.dense_layers)"),
            ("a = group.count.real", "config.dense_layers.real", "(config.layers - config.dense_layers).real"),
            ("a = max(group.count)", "max(config.dense_layers)", "max(config.layers - config.dense_layers)"),
            ("a = str.group.count", "str.group.count", "str.group.count"),
            ("a = str.block, dict(group=1)", "str.block, dict(group=1)", "str.block, dict(group=1)"),
            ("a = [group.count for group in [1]]",) + ("[group.count for group in [1]]",) * 2,
            ("a = lambda group: group.stack",) + ("lambda group: group.stack",) * 2,
        ],
    )
    def test_expressions(self, statement, dense, sparse):
        text = self.woven(statement)
        assert f"a = {dense}\n" in text and f"a = {sparse}\n" in text and text.count("a = ") == 2

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [("2 * layers.count", 12), ("-layers.count", -6), ("layers.sum(lambda layer: 2 * layer.window)", 636)],
    )
    def test_sums(self, expression, expected):
        init = PATTERN.replace('"config.layers"', '"config.layers + 0"')
        host = MODEL.replace("layers.sum(lambda layer: min(layer.window, 9))", expression)
        names = run(model(init, block=BLOCK, window=WINDOW, period=PERIOD, model=host))
        assert names["model"](sizes(layers=6))[-1] == expected

    def test_stacks_of_several_kinds(self):
        """What layers of a stack are made with, each for itself, where they differ; else for one of them."""
        init = PATTERN.replace('"config.layers"', '"config.layers + 0"')
        host = MODEL.replace("lambda group: group.count * 10", "lambda group: (group.window, group.count)")
        names = run(model(init, block=BLOCK, window=WINDOW, period=PERIOD, model=host))
        assert names["model"](sizes(layers=6))[2] == ((6, 3), (100, 3))

    def test_stacks(self):
        host = PLAIN.replace(
            "layers.stacked(lambda group: group.count * 10)",
            "layers.stacked(lambda group: (group.count * 10, config.layers_each))",
        )
        names = run(model(GROUPS, block=BLOCK, model=host, offset_=OFFSET))
        assert names["model"](sizes(layers=5, dense_layers=2, layers_each=7))[2] == ((20, 7), (30, 7))
