"""Places that a project's own fragment can be woven into: what a point shows there is what it says."""

from __future__ import annotations

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from families import parity
from families.weaving import LIBRARY, write
from generator.recipe.library import Library
from generator.weaver import weave

HEAD = '''"""A bias of each token's logit, a term of the loss by its batch, metrics, a field of batches, settings of requests."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from generator.language import proceed, splice


@splice("Embedding.parameters")
def _(self, V):
    self.head_bias = nnx.Param(jnp.zeros(V), axes=("vocab",))


@splice("Embedding.logits")
def _(self, logits, vocabulary):
    proceed()
    logits = logits + self.head_bias[...][vocabulary]


@splice("loss.terms")
def _(total, batch, x, log_likelihood):
    total += jnp.sum(batch["marks"] * (jnp.mean(x.astype(jnp.float32) ** 2, axis=-1) - log_likelihood))


@splice("train_step.metrics")
def _(metrics, targets, batch):
    metrics["train/marked"] = jnp.sum(batch["marks"]) / targets


@splice("open_pieces.fields")
def _(tokens, parts, cut_pieces):
    proceed()
    cut_pieces = [piece | {"marks": tokens[1:][part] % 2} for piece, part in zip(cut_pieces, parts)]


@splice("join_pieces.row")
def _(row):
    row["marks"] = row["marks"].astype(np.float32)


@splice("abstract_batch.fields")
def _(dtypes):
    dtypes["marks"] = "float32"


@splice("FeedForward.parameters")
def _(self, F):
    self.inner = F


@splice("read_fields.found")
def _(fields, kind):
    fields.pop("response_format", None)


@splice("Fields.fields")
def _():
    patience: int = 3  # of a request


@splice("Fields.sampling")
def _(same):
    same = (*same, "patience")


@splice("SamplingParams.fields")
def _():
    patience: int = 0  # of a request
'''
BLOCK = '''"""A scale on each branch of a block, by a fragment that knows how the block's norm is called."""

from generator.language import proceed, splice


@splice("Block.parameters")
def _(self, config):
    self.branch = 1 / config.layers


@splice("Block.attended")
def _(self, attended):
    attended = self.branch * attended


@splice("hf.parallel_norm")
def _():
    proceed()
    yield "norm.offset", "model.layers.{}.input_layernorm.offset", "d -> d"
'''


GELU = '''"""What a feed-forward is made of."""

from generator.language import splice


@splice("FeedForward.parameters")
def _(self, F):
    self.inner = F
'''


def package(base: str, text: str, folder, *, without: str = "", more: str = ""):
    own = f'base = "{base}"\ntitle = "Own"\nfragments = ["model/own"{more}]\nwithout = [{without}]\n'
    files = {"fragments/model/own.py": text, "templates/architectures/own.toml": own}
    return write(weave("own", "cpu", Library({**LIBRARY.files, **files})), folder)


@pytest.mark.slow
def test_a_head_bias_knows_its_part_of_the_vocabulary_and_the_loss_its_batch(tmp_path):
    folder = package("llama2", HEAD, tmp_path, without='"data/packing"')
    loaded = parity.load_package(folder)
    train, model, data = loaded.step, loaded.model, importlib.import_module(f"{folder.name}.data")
    completion = importlib.import_module(f"{folder.name}.openai").Completion(prompt="a", patience=7)
    assert completion.sampling(0, 8, 258, {}).patience == 7 and loaded.engine.SamplingParams().patience == 0
    sizes = dict(layers=1, width=32, vocab_size=258, sequence_length=16, batch_size=2, dtype="float32")
    config = dataclasses.replace(loaded.config.PRESETS["tiny"], **sizes)
    decoder = model.Decoder(config, nnx.Rngs(0))
    decoder.embedding.head_bias.set_value(jnp.arange(258.0) / 50)
    assert decoder.layers.mlp.inner == config.mlp_width

    x, targets = jax.random.normal(jax.random.key(0), (2, 16, 32)), jnp.arange(32).reshape(2, 16) * 8
    kernel, vocabulary = decoder.embedding.kernel(), jnp.arange(258)
    whole, both = (
        [train.score_share(decoder.embedding, kernel[:, part], vocabulary[part], x, targets, config) for part in parts]
        for parts in ([slice(None)], [slice(0, 100), slice(100, 258)])
    )  # of a device that has all tokens, and of two
    log_sums = jax.nn.logsumexp(jnp.stack([share[0] for share in both]), axis=0)
    np.testing.assert_allclose(log_sums, whole[0][0], atol=1e-5)
    np.testing.assert_allclose(both[0][1] + both[1][1], whole[0][1], atol=1e-5)
    logits = decoder.embedding.logits(x, kernel)
    np.testing.assert_allclose(jax.nn.logsumexp(logits, axis=-1), whole[0][0][0], atol=1e-5)

    mesh = loaded.parallel.make_mesh(1, 1, 1)
    with jax.set_mesh(mesh):  # as devices score, each its share
        batches = data.Batches(config, data.abstract_batch(config, mesh)["tokens"].sharding)
        batch = batches.to_devices(next(batches))
        assert set(batch) == set(data.abstract_batch(config, mesh))
        state = train.new_state(config, decoder)
        _, metrics = jax.jit(train.train_step, static_argnums=2)(state, batch, config)
        total, sums = jax.jit(lambda model, batch: train.loss(model, batch, config))(decoder, batch)
    marked = float(np.sum(batch["marks"]))
    np.testing.assert_allclose(metrics["train/marked"], marked / float(sums["targets"]), rtol=1e-5)
    assert marked and float(total) > float(sums["cross_entropy"])


def test_a_parallel_block_names_its_norm_and_takes_parameters(tmp_path):
    folder = package("cohere2", BLOCK, tmp_path, more=', "model/norm_bias"')
    source, names = ((folder / f"{name}.py").read_text() for name in ("model", "huggingface"))
    for line in "self.branch = 1 / config.layers", "attended = self.branch * attended", "self.bias = nnx.Param":
        assert line in source
    assert '"norm.bias", "model.layers.{}.input_layernorm.bias"' in names and '"norm.offset"' in names


def test_a_feed_forward_with_a_gelu_takes_parameters(tmp_path):
    assert "self.inner = F" in (package("gpt2", GELU, tmp_path) / "model.py").read_text()
