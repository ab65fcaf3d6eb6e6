"""The model against its reference: an export gives equal logits in transformers; an import, the same model."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from generator.language import excludes, point
from generator.language.roles import PRESETS, Decoder, load_hf, named_arrays, save_hf

excludes("reward_head")  # whose models have no logits in transformers


torch = pytest.importorskip("torch", reason="the reference needs torch and transformers: pip install '.[test]'")


transformers = pytest.importorskip("transformers", reason="the reference needs torch and transformers")


def test_exported_it_gives_the_logits_of_the_reference(tmp_path):
    config = dataclasses.replace(PRESETS["tiny"], dtype="float32", init_std=0.1)
    model = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()
    save_hf(config, model, tmp_path / "exported")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "exported", attn_implementation="eager", dtype="float32"
    )
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 150), dtype=np.int32)
    with torch.no_grad():
        expected = reference.eval()(torch.from_numpy(tokens).long()).logits.numpy()
    logits = np.asarray(jax.jit(model.__call__)(tokens))
    assert np.abs(expected).max() > 0.5  # otherwise the tolerance would be too loose
    np.testing.assert_allclose(logits, expected, atol=2e-4 * np.abs(expected).max())

    _, again = load_hf(tmp_path / "exported")
    ours, theirs = named_arrays(again), named_arrays(model)
    point("test_reference.imported", ours, theirs, again, model)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
