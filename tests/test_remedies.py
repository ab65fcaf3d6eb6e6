"""Mistakes that a user of the built-in library makes: the error names the cause, and its remedy is one that helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from generator.errors import LoomError
from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave

FILES = Library.read([Path(__file__).parents[1]]).files
WINDOW = 'fragments = ["model/sliding_window"]\nwithout_presets = ["7b", "13b", "70b"]\n[presets.tiny]\nwindow = 5\n'
LAYERS = '[[layers]]\npattern = ["all"]\n[kinds.all]\n'
BLOCK = '''"""Another block."""

from flax import nnx

from generator.language.roles import Attention, FeedForward


class Block(nnx.Module):
    """Another block."""

    def __init__(self, config, rngs):
        self.attention = Attention(config, rngs)
        self.mlp = FeedForward(config, rngs)

    def __call__(self, x):
        return x + self.mlp(self.attention(x))
'''


DEPTH = """from generator.language import provide, splice


@splice("Attention.parameters")
def _(self, depth):
    self.depth = depth


@provide("Attention.__call__")
def depth(self) -> int:
    return self.depth
"""


def woven(architecture: str, base: str = "llama2", parts: Sequence[str] = ("all",), **fragments: str) -> Package:
    """A variant of a built-in architecture, in a project that has these fragments in fragments/model/."""
    text = f'base = "{base}"\ntitle = "Mine"\n{architecture}'
    paths = {name: name if "/" in name else f"model/{name}" for name in fragments}
    own = {f"fragments/{paths[name]}.py": fragment for name, fragment in fragments.items()}
    library = Library({**FILES, "templates/architectures/mine.toml": text, **own}, FILES.keys())
    return weave("mine", "cpu", library, parts=parts)


def refused(architecture: str, base: str = "llama2", parts: Sequence[str] = ("all",), **fragments: str) -> str:
    """The error of a variant of a built-in architecture."""
    with pytest.raises(LoomError) as raised:
        woven(architecture, base, parts, **fragments)
    return str(raised.value)


def test_what_no_kind_of_layer_gives():
    """The same where nothing sums over layers."""
    message = "group.window is read here, and some kind of layer is made without 'window'\n  Write init = { window = "
    assert message in refused(WINDOW) and message in refused(WINDOW + LAYERS)
    text = refused('fragments = ["model/depth"]\n' + LAYERS, depth=DEPTH)
    assert "needs 'depth' where Attention is made, and no kind of layer gives it\n  Write init = { depth = " in text
    assert "config.window" in woven(WINDOW + LAYERS + 'init = { window = "config.window" }\n').files["model.py"]


def test_a_block_that_is_left_out():
    text = refused('without = ["model/block"]\n')
    assert "decoder.py:39: model/decoder uses Block, which no selected fragment defines\n  Select a fragment" in text


def test_a_block_without_the_points_of_the_one_that_it_replaces():
    text = refused('without = ["model/block"]\nfragments = ["model/other"]\n', base="gemma2", other=BLOCK)
    assert "splices into the point 'Block.parameters', which no selected fragment has\n" in text
    assert "It is a point of model/block, which is not selected; model/other stands in its place: repeat the" in text


def test_a_kernel_without_the_points_of_the_one_that_it_replaces():
    """Of a window, all splices are optional, as each kernel has points of its own: it must not vanish in silence."""
    kernel = (
        '"""Another kernel."""\n\nimport jax\n\n\n'
        "def attend(q, k, v):\n    return jax.nn.dot_product_attention(q, k, v, is_causal=True)\n"
    )
    text = refused('without = ["attention/attend_tiles"]\nfragments = ["model/other"]\n', base="mistral", other=kernel)
    assert "model/sliding_window splices into the point 'attend.mask', which no selected fragment has\n" in text
    assert "It is a point of kernels/attend_xla, which is not selected; model/other stands in its place" in text


SUMS = '''"""The sum of values, besides."""

import jax.numpy as jnp

from generator.language import proceed, splice


@splice("Attention.attend"{order})
def _(v, context):
    proceed()
    context = context + jnp.cumsum(v, axis=1)
'''
CACHED = """

@splice("Attention.cached", after="attend_token")
def _(cache, pages, positions, context):
    proceed()
    context = context + sum_in_pages(cache, pages, positions)


def sum_in_pages(cache, pages, positions):
    return jnp.cumsum(cache.value, axis=1)
"""


def test_a_splice_beside_pages_says_what_it_does_with_a_cache():
    """The remedy of each error leads to the next one, and the last of them to a package."""
    selected = 'fragments = ["model/own"]\n'
    text = refused(selected, own=SUMS.format(order=""))
    assert re.search(
        r"own.py:9: model/own reads v after the statements at fragments/model/attention.py:\d+, and pages/pages", text
    )
    assert 'Write before="pages" here, and splice at Attention.cached for the other branch: it shows cache, ' in text
    inside = SUMS.format(order=', before="pages"')
    text = refused(selected, own=inside)
    assert "own.py:9: model/own changes context in one branch of pages/pages (fragments/pages/pages.py:" in text
    assert "Splice at Attention.cached too" in text
    assert "sum_in_pages(cache, pages, positions)" in woven(selected, own=inside + CACHED).files["model.py"]


CONVOLUTION = '''"""Convolutions in place of attention, in some layers."""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import splice
from generator.language.roles import Config, Linear


class Attention(nnx.Module):
    """Adds what is made of the token before."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D = config.width
        self.before = Linear("BTD,DE->BTE", (D, D), ("embed", "mlp"), config.init_std, rngs)

    def __call__(self, x: Array) -> Array:
        return x + self.before(jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1])


@splice("hf.layer_tensors")
def _():
    yield "attention.before.kernel", "model.layers.{}.conv.weight", "d e -> e d"
'''
OF_FULL = "model/attention", "model/grouped_queries", "model/rope"
MIXED = """fragments = ["model/period"]
without = {without}
[[layers]]
pattern = ["conv", "full"]
"""
CONV = '[kinds.conv]\nwhere = "layer % 2 == 0"\nfragments = ["model/own"]\n'
FULL = '[kinds.full]\nwhere = "layer % 2 == 1"\nfragments = {fragments}\n'


def test_kinds_of_layer_in_any_order():
    """Two of them define one role; the first of the layers names what they share."""
    mixed, full = MIXED.format(without=[*OF_FULL]), FULL.format(fragments=[*OF_FULL])
    one, other = (woven(mixed + kinds, parts=(), own=CONVOLUTION) for kinds in (CONV + full, full + CONV))
    assert one.files == other.files
    assert "class ConvAttention(" in one.files["model.py"] and "class FullAttention(" in one.files["model.py"]


def test_layers_without_keys_and_values_cannot_be_served():
    """A part that needs them is refused, and "all" leaves it out; the place of the message is the kind without."""
    mixed, full = MIXED.format(without=[*OF_FULL]), FULL.format(fragments=[*OF_FULL])
    reason = "The part serve needs keys and values that a cache can keep of every layer: build without it; to have the "
    for kinds in CONV + full, full + CONV:
        assert f'{reason}other parts, select "pages/pages" under [kinds.full] alone.' in refused(
            mixed + kinds, own=CONVOLUTION
        )
    cached = (*OF_FULL, "pages/pages")
    mixed, full = MIXED.format(without=[*cached]), FULL.format(fragments=[*cached])
    assert "engine.py" not in woven(mixed + CONV + full, own=CONVOLUTION).files
    text = refused(mixed + full + CONV, parts=("lm_eval",), own=CONVOLUTION)
    assert text == (
        "templates/architectures/mine.toml:10: the model cannot have the part serve: layers of the kind conv have no keys "
        "and values that a cache can keep (pages/pages or states/states or model/mlp_block)\n  Build it without lm_eval."
    )


BOTH_WAYS = '''"""Attention both ways, which no cache can continue."""

from generator.language import excludes, splice

excludes("pages")


@splice("attend.mask")
def _(visible):
    visible = visible | True
'''


def test_a_model_that_cannot_decode_says_so():
    """By a fragment that excludes the cache, or an architecture that leaves it out."""
    encoder = 'fragments = ["model/own"]\n'
    text = refused(encoder, parts=("serve",), own=BOTH_WAYS)
    assert (
        "the model cannot have the part serve: model/own excludes pages/pages: no keys and values that a cache" in text
    )
    assert "\n  Build it without serve." in text
    silent = BOTH_WAYS.replace('excludes("pages")', "")
    text = refused(encoder, parts=("serve",), own=silent)
    assert "the part serve: model/own splices at attend.mask and not at attend_cached.mask, which is what the" in text
    for own in BOTH_WAYS, silent:
        files = woven(encoder, own=own).files  # with all parts that it can have
        assert "engine.py" not in files and "evaluate.py" in files
    assert "pages" not in woven(encoder, own=BOTH_WAYS).files["model.py"]
    both = silent.replace('@splice("attend.mask")', '@splice("attend.mask", "attend_cached.mask", optional=True)')
    assert "engine.py" in woven(encoder, parts=("serve",), own=both).files
    text = refused('without = ["pages/pages"]\n', parts=("rewards",))
    assert (
        "the model cannot have the part serve: it has no keys and values that a cache can keep (pages/pages or "
        "states/states or model/mlp_block)\n" in text
    )


def test_a_part_for_experts_needs_a_layer_that_has_some():
    text = refused("", parts=("routing_replay",))
    assert "the model cannot have the part routing_replay: it has no experts (model/experts)\n" in text


MARKED = '''"""Queries that depend on what batches have."""

from generator.language import provide, splice


@splice("Attention.heads")
def _(q, marks):
    q = q * marks
'''
PROVIDED = """

@provide({site})
def marks({reads}):
    return {value}
"""


@pytest.mark.parametrize("parts", [(), ("all",)], ids=["trainer", "parts"])
def test_a_value_of_batches_has_a_fallback_for_others(parts):
    """First it is provided nowhere, then only where there are batches, then everywhere."""
    selected = 'fragments = ["model/own"]\n'
    assert 'Write @provide("SITE") def marks(...) where it is known' in refused(selected, parts=parts, own=MARKED)
    known = MARKED + PROVIDED.format(site='"loss"', reads="batch", value='batch["marks"]')
    text = refused(selected, parts=parts, own=known)
    (site,) = re.findall(r"It is provided at loss .*? Write @provide\((.*)\) def marks\(\.\.\.\) besides", text)
    everywhere = known + PROVIDED.format(site=site, reads="tokens", value="tokens * 0 + 1")
    files = woven(selected, parts=parts, own=everywhere).files
    assert 'batch["marks"]' in files["step.py"] and "q = q * marks" in files["model.py"]


HELPED = '''"""Scores that are bounded, in steps with a cache and without."""

import jax.numpy as jnp

from generator.language import splice
{imported}

@splice("attend_cached.scores", "attend.scores", optional=True)
def _(scores):
    scores = squash(scores)


@splice("Attention.heads")
def _(q):
    q = squash(q)
'''
HELPER = "\n\ndef squash(x):\n    return jnp.tanh(x)\n"


def test_a_helper_of_attention_over_pages_has_a_place():
    """model.py imports pages.py, so that what both use is in the latter."""
    text = refused('fragments = ["model/own"]\n', own=HELPED.format(imported="") + HELPER)
    (folder,) = re.findall(r"Move squash to a fragment of its own in fragments/(\w+)/, whose definitions go to", text)
    sources = {
        "model/own": HELPED.format(imported="from generator.language.roles import squash\n"),
        f"{folder}/squash": f'"""Squash."""\n\nimport jax.numpy as jnp\n{HELPER}',
    }
    assert "def squash(" in woven(f"fragments = {[*sources]}\n", **sources).files["pages.py"]


def test_a_family_without_rotation_has_no_buffers():
    files = woven('without = ["model/rope", "tests/test_rope"]\n', parts=("huggingface",)).files["huggingface.py"]
    assert re.search(r"def hf_buffers\(\).*?\n    yield from \(\)\n", files, re.DOTALL)


def test_a_preset_with_a_dot_in_its_name():
    text = refused("[presets.0.3b]\nwidth = 64\n")
    assert text == (
        "templates/architectures/mine.toml:3: the preset '0' holds a table '3b', and a preset holds fields\n"
        '  If the preset is called 0.3b, write [presets."0.3b"].'
    )


@pytest.mark.parametrize("body", ["(self, h):\n    proceed()\n", "(self, nothing, h):\n    h = h + nothing\n"])
def test_no_remedy_is_to_edit_a_built_in_file(body):
    own = f'"""Own."""\n\nfrom generator.language import splice\n\n\n@splice("Block.mlp")\ndef _{body}'
    remedy = refused('fragments = ["model/own"]\n', own=own).partition("\n")[2]
    assert remedy and "fragments/model/block.py" not in remedy and "around them there" not in remedy
