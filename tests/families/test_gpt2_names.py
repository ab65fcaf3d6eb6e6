"""The files that OpenAI released hold GPT-2 without its head: names without a prefix, and masks as buffers."""

from __future__ import annotations

import jax
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from families import parity
from families.cases import FAMILIES
from families.weaving import woven

SETTINGS = FAMILIES["gpt2"].settings


def test_loaded(tmp_path):
    package = woven("gpt2", "cpu", tmp_path)
    config = transformers.GPT2Config(**{**SETTINGS, "n_inner": None}, attn_implementation="eager")
    reference = parity.make_reference(transformers.GPT2LMHeadModel, config)
    reference.transformer.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs/model.safetensors"
    masks = {f"h.{layer}.attn.bias": np.tri(64, dtype=np.float32)[None, None] for layer in range(2)}
    tensors = load_file(path)
    assert "wte.weight" in tensors
    save_file({**tensors, **masks}, path)
    tokens = np.random.default_rng(0).integers(0, 96, (2, 64), dtype=np.int32)
    _, model = package.huggingface.load_hf(tmp_path / "theirs")
    with torch.no_grad():
        expected = reference(parity.as_torch(tokens)).logits.numpy()
    np.testing.assert_allclose(jax.jit(model)(tokens), expected, atol=1e-4, rtol=0)


def test_past_the_context_nothing_is_made_up(tmp_path):
    package = woven("gpt2", "cpu", tmp_path)
    parity.make_reference(transformers.GPT2LMHeadModel, transformers.GPT2Config(**SETTINGS)).save_pretrained(
        tmp_path / "theirs"
    )
    _, model = package.huggingface.load_hf(tmp_path / "theirs")
    logits = np.asarray(jax.jit(model)(np.zeros((1, 65), np.int32)))
    assert np.isnan(logits[:, 64]).all()
