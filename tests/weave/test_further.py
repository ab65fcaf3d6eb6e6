"""Layers after the last one, which a fragment has, and functions in which is provided what another site has."""

from __future__ import annotations

from textwrap import dedent

import jax.numpy as jnp
import numpy as np
import pytest
from miniature import PACKAGE, definition, files, refused, run, tidy

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

MODEL = """
    import jax
    import jax.numpy as jnp
    from generator.language import layers, point, splice
    from generator.language.roles import Block, Config

    class Config:
        layers: int = 4  # in all

    class Block:
        def __init__(self, config, key):
            self.scale = 2.0 * key
            point("Block.made")

        def __call__(self, x):
            point("Block.mixed", x)
            return x * self.scale

    class Model:
        def __init__(self, config):
            for group in layers.groups:
                group.stack = jax.vmap(lambda key: group.Block(config, key))(jnp.ones(group.count))
            point("Model.made", config)

        def hidden(self, x):
            for group in layers.groups:
                def block(x, layer: Block):
                    x = layer(x)
                    return x, None
                x, _ = jax.lax.scan(block, x, group.stack)
            return x

    def model(model: Model, x, config: Config):
        with point("model.hidden", model, x, config):
            y = model.hidden(x)
        point("model.end", y)
        return y, layers.count, layers.stacks
"""
SHIFT = """
    from generator.language import emit, provide, splice

    @provide("Model.hidden")
    def shift(x):
        return x + 1

    @splice("Block.mixed")
    def _(x, shift):
        load = shift
        x = x + load
        emit(load)

    @splice("model.end")
    def _(y, load):
        y = y, load
"""
FURTHER = """
    import jax
    import jax.numpy as jnp
    from generator.language import alike, layers, splice
    from generator.language.roles import Block, Config, Model

    layers.further("extra", "config.extra")
    alike("both", "Model.hidden")

    class Config:
        extra: int = 2  # layers after the last

    class Extra:
        def __init__(self, config, key):
            layers.last.module = layers.last.Block(config, key)

        def __call__(self, x):
            x = layers.last.module(x)
            return x - 1

    @splice("Model.made")
    def _(self, config):
        self.extra = jax.vmap(lambda key: Extra(config, key))(jnp.ones(config.extra))

    def both(model: Model, x):
        y = model.hidden(x)

        def extra_block(x, layer: Extra):
            x = layer(x)
            return x, None

        y, _ = jax.lax.scan(extra_block, y, model.extra)
        return y

    @splice("model.hidden")
    def _(model, x, y):
        y = both(model, x)
"""
KINDS = """
    [[layers]]
    name = "first"
    pattern = ["plain"]
    count = "1"
    [[layers]]
    pattern = ["marked"]
    count = "config.layers - 1"
    [kinds.plain]
    init = { mark = "0" }
    [kinds.marked]
    init = { mark = "config.extra" }
"""
MARKED = """
    from generator.language import splice

    @splice("Block.made")
    def _(self, mark):
        self.mark = mark
"""


def woven(architecture: str, **texts: str) -> str:
    common = {f"model/{name}": text for name, text in texts.items()}
    package = PACKAGE + '[requirements]\njax = "jax>=0.10.2"\n'
    library = Library(files(common, f'title = "Toy"\n{dedent(architecture)}', package=package))
    text = weave("toy", "any", library).files["model.py"]
    return text[text.index('"""', text.index('"""') + 3) + 4 :].replace("from .config import Config", "Config = object")


BOTH = """
    def both(model: Model, x):
        shift = x + 1
        y, hidden_load = model.hidden(x)

        def extra_block(x, layer: Extra):
            x, load = layer(x, shift)
            return x, load

        y, extra_load = jax.lax.scan(extra_block, y, model.extra)
        return y, (hidden_load, extra_load)
"""


def test_values_reach_them_and_come_from_them():
    """What the model provides to its layers is provided to theirs; what both give is a tuple of both."""
    text = woven("", model=MODEL, shift=SHIFT, further=FURTHER)
    assert definition(text, "both") == tidy(BOTH)
    names = run(text)
    config = type("Config", (), {"layers": 4, "extra": 2})
    # the classes are no pytrees here: their stacks of numbers are scanned in their place
    made = names["Model"].__new__(names["Model"])
    made.layers, made.extra = Stack(names["Block"], 4, config), Stack(names["Extra"], 2, config)
    x = jnp.arange(3.0)
    (y, load), count, numbers = scanned(names, made, x, config)
    expected, shift = np.arange(3.0), np.arange(3.0) + 1
    for _ in range(4):
        expected = (expected + shift) * 2
    for _ in range(2):
        expected = (expected + shift) * 2 - 1
    np.testing.assert_array_equal(y, expected)
    assert [part.shape for part in load] == [(4, 3), (2, 3)]
    assert count == 6
    assert numbers == {"layers": range(4), "extra": range(4, 6), "extra.layer": range(4, 6)}


class Stack:
    """So many layers of a class, all alike."""

    def __init__(self, kind, length, config):
        self.layers = [kind(config, 1.0) for _ in range(length)]


def scanned(names, model, x, config):
    """`model` with a scan that goes over a `Stack`."""

    def scan(function, carry, stack):
        outputs = []
        for layer in stack.layers:
            carry, output = function(carry, layer)
            outputs.append(output)
        return carry, jnp.stack(outputs)

    names["jax"] = type("jax", (), {"lax": type("lax", (), {"scan": staticmethod(scan)})})
    return names["model"](model, x, config)


def test_they_are_of_the_kind_of_the_last_layer():
    text = woven(KINDS, model=MODEL, shift=SHIFT, further=FURTHER, marked=MARKED)
    assert "self.layer = Block(config, key, mark=config.extra)" in definition(text, "Extra")
    numbers = '{ "first_layers": range(1), "layers": range(1, config.layers), '
    assert numbers in " ".join(definition(text, "model").split())


def test_without_them_nothing_is_left():
    text = woven("", model=MODEL, shift=SHIFT)
    assert "extra" not in text and "config.layers, {" in definition(text, "model")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('layers.further("extra")', "layers.further takes two strings"),
        ('alike("both", SITE)', "alike takes two strings"),
    ],
)
def test_declarations_that_cannot_be_read(text, found):
    assert found in refused(further=f"from generator.language import alike, layers\n{text}\n")


def test_a_function_that_is_alike_and_not_there():
    broken = FURTHER.replace('alike("both"', 'alike("neither"')
    with pytest.raises(LoomError, match="provides shift at 'neither', which no selected fragment has"):
        woven("", model=MODEL, shift=SHIFT, further=broken)
