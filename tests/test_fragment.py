"""What a fragment holds, and what it may not."""

from __future__ import annotations

import pytest
from miniature import with_imports

from generator.errors import LoomError
from generator.language.fragment import Fragment, parse_fragment

SPLICE = "from generator.language import splice\n"
TEXT = '''
"""Rotary position embedding.

Turns each pair.

Source: Su et al. 2021, arXiv 2104.09864,
section 3.4.2.
"""

import jax.numpy as jnp
import os.path
from functools import partial as part, cache

from generator.language.roles import Block

requires("attention")


class Config:
    """Settings."""

    # the base
    theta: float = 1.0

    @property
    def double(self) -> float:
        return self.theta * 2


# how far a Block reaches
LIMIT: int = 3


@cache
def rotate(x):
    return x


@splice("Attention.heads", before="cache scale", after="norm", optional=True)
def _(q, config):
    """Not copied."""
    # turned
    q = rotate(q)


@provide("Decoder.hidden", optional=True, per_layer=True)
def angles(positions) -> "Array":
    size = 2
    return positions * size  # [B, T]


if __name__ == "__main__":
    rotate(1)'''


def parse(text: str) -> Fragment:
    return parse_fragment("fragments/model/rope.py", with_imports(text))


def test_parts_and_the_places_that_they_stand_at():
    fragment = parse(TEXT)
    assert (fragment.name, fragment.folder, fragment.short) == ("model/rope", "model", "rope")
    assert fragment.title == "Rotary position embedding"
    assert fragment.citation == "Su et al. 2021, arXiv 2104.09864, section 3.4.2"
    assert {name: (i.module, i.name, i.alias, i.origin.line) for name, i in fragment.imports.items()} == {
        "jnp": ("jax.numpy", "", "jnp", 9),
        "os.path": ("os.path", "", "os", 10),
        "part": ("functools", "partial", "part", 11),
        "cache": ("functools", "cache", "cache", 11),
    }
    assert {d.name: d.text.text for d in fragment.definitions} == {
        "LIMIT": "# how far a Block reaches\nLIMIT: int = 3\n",
        "rotate": "@cache\ndef rotate(x):\n    return x\n",
        "__main__": 'if __name__ == "__main__":\n    rotate(1)\n',
    }
    assert str(fragment.definitions[1].text.origin_at(0)) == "fragments/model/rope.py:33"
    assert {f.name: f.text.text for f in fragment.fields} == {
        "theta": "    # the base\n    theta: float = 1.0\n",
        "double": "    @property\n    def double(self) -> float:\n        return self.theta * 2\n",
    }
    (splice,), (provider,) = fragment.splices, fragment.providers
    assert (splice.point, splice.reads, splice.optional) == ("Attention.heads", ("q", "config"), True)
    assert (splice.before, splice.after) == (("cache", "scale"), ("norm",))
    assert splice.body.text == "    # turned\n    q = rotate(q)\n"
    assert (splice.origin.line, splice.body.origin_at(0).line) == (39, 41)
    assert (provider.value, provider.site, provider.reads) == ("angles", "Decoder.hidden", ("positions",))
    assert (provider.body.text, provider.result) == ("    size = 2\n", "positions * size")
    assert provider.returned.text == "    return positions * size  # [B, T]\n"
    assert (provider.annotation, provider.optional, provider.per_layer) == ('"Array"', True, True)
    assert (fragment.requires, fragment.excludes) == (("attention",), ())
    (provider,) = parse('@provide("f")\ndef x(y):\n    return y').providers  # no newline at the end
    assert provider.result == "y"
    assert (parse("").title, parse("").definitions) == ("", ())


class TestRefused:
    """A fragment that the weaver could not read rightly is an error at its line."""

    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("x = 1\ndef f(:\n    pass\n", 2, "not valid Python: invalid syntax"),
            ("def f():\n    return (1,\n", 2, "not valid Python: '(' was never closed"),
            ("def f():\nreturn 1\n", 2, "not valid Python: expected an indented block"),
            ("def f(a, a):\n    return 1\n", 1, "not valid Python: duplicate argument 'a'"),
            ("x = 1\nreturn x\n", 2, "not valid Python: 'return' outside function"),
            ('x = "\\d"\n', 1, 'not valid Python: '),
            ("def f():\n\treturn 1\n", 2, "indented with something other than spaces"),
            ("x = 1\nif x: y = 2\n", 2, "a block on the line of its header"),
            ("def f(): return 1\n", 1, "a block on the line of its header"),
            ("if x:\\\n  y = 2\n", 1, "a block on the line of its header"),
            ("def f(\n    x,\n): return 1\n", 1, "a block on the line of its header"),
            ("def f():\n    try:\n        g()\n    except E: pass\n", 4, "a block on the line of its header"),
            ("def f():\n    for x in y:\n        g()\n    else: pass\n", 4, "a block on the line of its header"),
            ("def f():\n    from os import *\n", 2, "not valid Python: import * only allowed at module level"),
            ("def f():\n    import generator.errors\n", 2, "a package may not need gen"),
            ("x = 1; y = 2\n", 1, "several statements on a line"),
            ("from os import *\n", 1, "an import of everything"),
            ("from .rope import rotate\n", 1, "a relative import"),
            ("import generator.language as m\n", 1, "a package may not need gen"),
            ("from generator.language.roles import A as B\n", 1, "an import under another name"),
            ("x = 1\nprint(x)\n", 2, "a fragment holds imports, functions, classes, values, splices and providers"),
            ("a, b = 1, 2\n", 1, "a fragment holds imports"),
            ("for x in y:\n    pass\n", 1, "a fragment holds imports"),
            ("requires(rope)\n", 1, "requires takes names of fragments"),
            ('excludes("a", 1)\n', 1, "excludes takes names of fragments"),
            ("class Config:\n    x = 1\n", 2, "Config holds annotated fields and properties"),
            ("@splice\ndef _(x):\n    x = 1\n", 1, "@splice cannot be read"),
            ('@marks.splice("a")\ndef _(x):\n    x = 1\n', 1, "@marks.splice cannot be read"),
            ("@splice()\ndef _(x):\n    x = 1\n", 1, "splice() does not say where"),
            ("@splice(name)\ndef _(x):\n    x = 1\n", 1, "cannot read this argument of splice()"),
            ('@splice("a", befor="b")\ndef _(x):\n    x = 1\n', 1, "cannot read this argument of splice()"),
            ('@splice("a", optional="b")\ndef _(x):\n    x = 1\n', 1, "cannot read this argument of splice()"),
            ('@splice("a", before=["b"])\ndef _(x):\n    x = 1\n', 1, "cannot read this argument of splice()"),
            ('@splice("a", 1)\ndef _(x):\n    x = 1\n', 1, "cannot read this argument of splice()"),
            ('@splice("a")\n@splice("b")\ndef _(x):\n    x = 1\n', 3, "a splice or a provider has one decorator"),
            ('@splice("a")\nasync def _(x):\n    x = 1\n', 2, "a splice cannot be async"),
            ('@splice("a")\ndef _(x):\n    """Nothing."""\n', 2, "the splice for a has no statements"),
            ('@provide("a")\ndef p(x):\n    y = x\n', 2, "the provider of p does not end in `return VALUE`"),
            ('@provide("a")\ndef p(x):\n    yield x\n    return x\n', 3, "a provider cannot have `yield x`"),
            (f'{SPLICE}@splice("a")\ndef _(x):\n    proceed()\n', 4, "uses proceed, which is not imported"),
            (f'{SPLICE}@splice("a")\ndef _():\n    if setting("b"):\n        pass\n', 4, "uses setting, which is not"),
            (f"{SPLICE}requires('b')\n", 2, "uses requires, which is not imported"),
            ('@splice("a")\ndef _(x):\n    proceed()\n', 1, "uses splice, which is not imported"),
            ("def f(x=threaded()):\n    return x\n", 1, "uses threaded, which is not imported"),
            ("def f(self):\n    self.a = nnx.Param(ones(4))\n", 2, "a parameter of a model without axes"),
        ],
    )  # fmt: skip
    def test_message(self, text, line, message):
        with pytest.raises(LoomError) as raised:
            parse_fragment("fragments/model/rope.py", text)
        assert str(raised.value).startswith(f"fragments/model/rope.py:{line}: {message}")
        assert raised.value.remedy

    @pytest.mark.parametrize(
        "text",
        [
            f'{SPLICE}from generator.language import proceed\n\n@splice("a")\ndef _(x):\n    proceed()\n',
            f'{SPLICE}@splice("a")\ndef _(layers, setting):\n    layers = setting\n',
            f"{SPLICE}def point(x):\n    return x\n\ndef f(x):\n    return point(x)\n",
            'def f(self):\n    self.a = nnx.Param(ones(4), axes=("embed",))\n    self.b = nnx.Param(1.0, axes=())\n',
        ],
    )
    def test_words_that_are_bound_and_axes_that_are_given(self, text):
        assert parse_fragment("fragments/model/rope.py", text)
