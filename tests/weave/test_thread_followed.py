"""What threading follows, it follows by what names mean; a use that it cannot follow is refused, however it is spelled."""

from __future__ import annotations

import re

import pytest
from miniature import VALUE, message, refused, run, woven

HEAD = """
import functools
import jax
from jax import checkpoint, lax
from flax import nnx
from generator.language import point

"""
BLOCK = (
    HEAD
    + """
class Block:
    def __call__(self, x):
        point("here", x)
        return x
"""
)
AGAIN = """
class Again:
    def again(self, x):
        point("here", x)
        return x

"""
IMPORTS = "import functools, jax\nfrom jax import checkpoint, lax\nfrom flax import nnx\n"
OTHER = "\ndef other(batch: Block):\n    return batch(1)\n"  # calls the method by its type
FOLLOW = "Block.__call__ must take or give p, and this may be an instance of Block that is used in a way that threading cannot follow"
METHOD = FOLLOW.replace("Block.__call__", "Again.again").replace("of Block", "of Again")


def text_of(host: str) -> str:
    return BLOCK + host


class TestMethods:
    """A method is used wherever an instance of its class may be called."""

    @pytest.mark.parametrize(
        "host",
        [
            "def site(batch):\n    rest = [Block(), Block()]\n    return rest[0](batch)\n",
            "def site(batch):\n    x = batch\n    for layer in [Block()]:\n        x = layer(x)\n    return x\n",
            "def site(batch):\n    return [layer(batch) for layer in (Block(),)]\n",
            "def site(batch):\n    layers = {}\n    layers['a'] = Block()\n    return layers['a'](batch)\n",
            "def site(batch):\n    layers = []\n    layers.append(Block())\n    return layers.pop()(batch)\n",
            "def site(batch):\n    return jax.vmap(Block())(batch)\n",
            "def site(batch):\n    return jax.tree.map(Block(), batch)\n",
            "def site(batch):\n    return jax.lax.cond(batch > 0, Block(), abs, batch)\n",
            "def site(batch):\n    return list(map(Block(), batch))\n",
            "def site(batch):\n    return (Block() if batch else None)(batch)\n",
            "def site(batch):\n    return functools.reduce(lambda x, layer: layer(x), [Block()], batch)\n",
            "def site(batch):\n    return (lambda layer: layer(batch))(Block())\n",
            "def apply(f, x):\n    return f(x)\n\ndef site(batch):\n    return apply(Block(), batch)\n",
            "def make():\n    return [Block()]\n\ndef site(batch):\n    return make()[0](batch)\n",
            "class Stack:\n    def __init__(self):\n        self.rest = [Block()]\n\n    def act(self, x):\n"
            "        return self.rest[0](x)\n\ndef site(batch):\n    return Stack().act(batch)\n",
            "class Stack:\n    def __init__(self):\n        setattr(self, 'one', Block())\n\n    def act(self, x, name):\n"
            "        return getattr(self, name)(x)\n\ndef site(batch):\n    return Stack().act(batch, 'one')\n",
            "class Stack:\n    def __init__(self):\n        self.one = Block()\n\ndef act(stack: Stack, name: str, x):\n"
            "    return getattr(stack, name)(x)\n\ndef site(batch):\n    return act(Stack(), 'one', batch)\n",
            "class Stack:\n    def __init__(self):\n        self.block = Block()\n\n    def act(self, x):\n"
            "        return jax.vmap(self.block)(x)\n\ndef site(batch):\n    return Stack().act(batch)\n",
            "class Stack:\n    rest: list[Block]\n\n    def act(self, x):\n        return self.rest[0](x)\n\n"
            "def site(batch):\n    return Stack().act(batch)\n",
            "def act(rest: list[Block], x):\n    return rest[0](x)\n\ndef site(batch):\n    return act([], batch)\n",
            "def act(x, f=Block()):\n    return f(x)\n\ndef site(batch):\n    return act(batch)\n",
            "def act(f, x):\n    return f(x)\n\ndef site(batch):\n    return act(*[Block(), batch])\n",
            "def act(f, x):\n    return f(x)\n\ndef site(batch):\n    return act(**{'f': Block(), 'x': batch})\n",
            "def layers():\n    yield Block()\n\ndef site(batch):\n    return [layer(batch) for layer in layers()]\n",
            "def site(batch):\n    make = lambda: Block()\n    return make()(batch)\n",
            "def site(batch):\n    match [Block()]:\n        case [layer]:\n            return layer(batch)\n",
            "def site(batch):\n    layer = None\n    def choose():\n        nonlocal layer\n        layer = Block()\n"
            "    choose()\n    return layer(batch)\n",
            "class Wide:\n    def __call__(self, x):\n        return x\n\ndef site(batch):\n    layer = Wide()\n"
            "    for layer in [Block()]:\n        batch = layer(batch)\n    return batch\n",
            "class Wide:\n    def __call__(self, x):\n        return x\n\ndef act(layer, x):\n    if x:\n"
            "        layer = Wide()\n    return layer(x)\n\ndef site(batch):\n    return act(Block(), batch)\n",
            "BLOCKS = [Block()]\n\ndef site(batch):\n    return BLOCKS[0](batch)\n",
            "class Wide(Block):\n    pass\n\ndef site(batch):\n    return [Wide()][0](batch)\n",
            "def site(batch):\n    layers = jax.vmap(lambda key: Block())(batch)\n    return layers(batch)\n",
        ],
    )
    def test_instances(self, host):
        provided = VALUE + '\n    @provide("other")\n    def p(batch):\n        return 1\n'
        text = message(refused(host=text_of(host + OTHER), value=provided))
        assert re.sub("instance of (Wide|any class)", "instance of Block", text) == FOLLOW

    @pytest.mark.parametrize(
        "use",
        ["jax.vmap(block.again)(batch)", "[block.again][0](batch)", "list(map([block][0].again, batch))"],
    )
    def test_bound_methods(self, use):
        host = f"{AGAIN}def site(batch):\n    block: Again = Again()\n    return block.again(batch), {use}\n"
        assert message(refused(host=host, value=VALUE)) == METHOD

    def test_a_list_whose_layers_are_named_by_a_type_is_followed(self):
        host = (
            "def act(layer: Block, x):\n    return layer(x)\n\n"
            "def site(batch):\n    return sum([act(layer, batch) for layer in [Block(), Block()]])\n"
        )
        assert run(IMPORTS + woven(host=text_of(host), value=VALUE))["site"](1) == 22

    def test_what_is_called_says_what_it_is(self):
        host = (
            "def act(f: Callable, x):\n    return f(x)\n\ndef site(batch):\n    block: Block = Block()\n"
            "    sizes = [len(str(type(layer))) for layer in [block]]\n    return block(batch) + act(abs, -1) + 0 * sizes[0]\n"
        )
        assert run("from typing import Callable\n" + IMPORTS + woven(host=text_of(host), value=VALUE))["site"](1) == 12
        assert message(refused(host=text_of(host.replace(": Callable", "")), value=VALUE)) == FOLLOW
        assert message(refused(host=text_of(host.replace("act(abs, -1)", "act(block, -1)")), value=VALUE)) == FOLLOW


class TestWrappers:
    """jax.checkpoint is followed, and a local partial of it, by what their names mean; nothing else."""

    INNER = 'def inner(x):\n    point("here", x)\n    return x\n\n'

    @pytest.mark.parametrize(
        "host",
        [
            "def site(batch):\n    return jax.checkpoint(inner)(batch)\n",
            "def site(batch):\n    return checkpoint(inner)(batch)\n",
            "def site(batch):\n    save = functools.partial(jax.checkpoint, prevent_cse=False)\n    return save(inner)(batch)\n",
            "def site(batch):\n    return nnx.remat(inner)(batch)\n",
        ],
    )
    def test_followed(self, host):
        assert run(IMPORTS + woven(host=HEAD + self.INNER + host, value=VALUE))["site"](1.0) == 11

    @pytest.mark.parametrize(
        "host",
        [
            "def site(batch):\n    return inner(batch), jax.grad(inner)(batch)\n",
            "def site(batch):\n    save = jax.checkpoint\n    return inner(batch), save(inner)(batch)\n",
            "def site(batch):\n    f = jax.jit(inner)\n    return inner(batch), f(batch)\n",
            "def save(f):\n    return jax.checkpoint(f)\n\ndef site(batch):\n    return inner(batch), save(inner)(batch)\n",
            "def grad(f):\n    return lambda x: f(x) + f(x)\n\ndef site(batch):\n    return inner(batch), grad(inner)(batch)\n",
            "def checkpoint(f, x):\n    return f(x)\n\ndef site(batch):\n    return inner(batch), checkpoint(inner, batch)\n",
            "def site(batch):\n    jit = lambda f: f\n    return inner(batch), jit(inner)(batch)\n",
            "def site(batch, jit):\n    return inner(batch), jit(inner)(batch)\n",
            "def site(batch):\n    jit = jax.jit\n    for jit in [lambda f: f]:\n        pass\n"
            "    return inner(batch), jit(inner)(batch)\n",
            "def site(batch):\n    return inner(batch), (lambda checkpoint: checkpoint(inner)(batch))(lambda f: f)\n",
            "def twice(f):\n    return f\n\n@twice\ndef save(f):\n    return jax.checkpoint(f)\n\n"
            "def site(batch):\n    return inner(batch), save(inner)(batch)\n",
            "def save(f):\n    g = jax.checkpoint(f)\n    return jax.checkpoint(f)\n\n"
            "def site(batch):\n    return inner(batch), save(inner)(batch)\n",
            "def site(batch):\n    return inner(batch), functools.partial(jax.jit, inner)()(batch)\n",
            "def scan(f, x, y):\n    return f(x, y)\n\ndef site(batch):\n    return inner(batch), scan(inner, batch, 1)\n",
        ],
    )
    def test_refused(self, host):
        imports = HEAD.replace("from jax import checkpoint, lax", "from jax import lax")
        text = message(refused(host=imports + self.INNER + host, value=VALUE))
        assert text == "inner must take or give p, and is used here in a way that threading cannot follow"

    @pytest.mark.parametrize("decorator", ["functools.cache", "twice", "property", "jax.custom_jvp"])
    def test_a_decorator_that_may_do_anything(self, decorator):
        host = f"def twice(f):\n    return lambda x: f(f(x))\n\n@{decorator}\n{self.INNER}def site(batch):\n    return inner(batch)\n"
        text = message(refused(host=HEAD + host, value=VALUE))
        assert text == f"inner must take or give p, and is decorated with {decorator}, which threading cannot follow"


class TestBinding:
    """A name has a value where Python gives it one."""

    OUTWARD = """
        @splice("here")
        def _(x):
            aux = x + 1
            emit(aux)

        @splice("end")
        def _(y, aux):
            y = y + aux
    """

    @pytest.mark.parametrize(
        "line",
        [
            "total = sum([aux for aux in [1]])",
            "total = {aux: aux for aux in [1]}",
            "total = (lambda aux: aux)(1)",
            "total = [lambda: (aux := 2)]",
        ],
    )
    def test_what_a_comprehension_binds_is_known_inside_it(self, line):
        host = (
            'def inner(x):\n    point("here", x)\n    return x\n\n'
            f'def site(x):\n    y = x\n    if x > 5:\n        y = inner(x)\n    {line}\n    point("end", y)\n    return y\n'
        )
        assert (
            message(refused(host=host, value=self.OUTWARD)) == "site reads aux here, and aux may not have a value yet"
        )


class TestCircles:
    """A function that calls itself may take a value along; what it would carry outward has no one place."""

    HOST = """
        def inner(x):
            point("here", x)
            if x > 3:
                return x
            y = inner(x + 1)
            return y

        def site(batch):
            y = inner(batch)
            point("end", y)
            return y
    """

    def test_inward(self):
        assert run(woven(host=self.HOST, value=VALUE.replace("x = x + p", "x = x + p // 10")))["site"](1) == 4

    def test_outward(self):
        value = """
            @splice("here")
            def _(x):
                aux = x
                emit(aux)

            @splice("end")
            def _(y, aux):
                y = y + aux
        """
        text = message(refused(host=self.HOST, value=value))
        assert text == "aux is carried through inner -> inner, which calls itself"

    def test_outward_by_way_of_another(self):
        host = self.HOST.replace("y = inner(x + 1)", "y = between(x)").replace(
            "def site", "def between(x):\n            y = inner(x + 1)\n            return y\n\n        def site"
        )
        value = "@splice('here')\ndef _(x):\n    aux = x\n    emit(aux)\n\n@splice('end')\ndef _(y, aux):\n    y = y + aux\n"
        assert "which calls itself" in message(refused(host=host, value=value))


def test_a_scanned_function_that_uses_all_the_usual_names():
    host = """
        class Block:
            def __call__(self, x):
                point("here", x)
                return x

        def hidden(x, layers):
            inputs, scanned, layer_inputs = 1, 2, 3

            def block(x, layer: Block):
                x = layer(x) + inputs + scanned + layer_inputs
                return x, None

            x, _ = jax.lax.scan(block, x, layers)
            return x

        def site(batch, layers):
            return hidden(batch, layers)
    """
    value = VALUE.replace('provide("site")', 'provide("site", per_layer=True)')
    assert "layer, p = layer_inputs_2" in woven(host=host, value=value)
