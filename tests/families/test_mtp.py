"""MTP layers (multi-token prediction) of DeepSeek V3, against those of transformers."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from safetensors.numpy import load_file, save_file
from transformers.modeling_layers import MtpModel

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, batch_of, with_architecture, woven
from generator.checkpoint.fit import fit

MTP = 2
FAMILY = FAMILIES["deepseek_v3"]
LAYERS = FAMILY.settings["num_hidden_layers"]

pytestmark = pytest.mark.xdist_group("mtp")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A package that `gen new` fits to a checkpoint with MTP layers, its random model, and the model's export."""
    folder = tmp_path_factory.mktemp("mtp")
    settings = FAMILY.settings | dict(num_mtp_layers=MTP)
    hf = json.loads(transformers.DeepseekV3Config(**settings).to_json_string(use_diff=False))
    text = fit(LIBRARY, "deepseek_v3", "cpu", hf | {"dtype": "float32"}, "two_mtp", "config.json")
    library = with_architecture("two_mtp", text)
    package = woven("two_mtp", "cpu", folder, library)
    config = package.config.PRESETS["two_mtp"]
    assert config.mtp_layers == MTP and "without" not in text
    rng = np.random.default_rng(0)
    model = jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()
    model = jax.tree.map(lambda x: x + rng.normal(0, 0.2, x.shape).astype(np.float32), model)
    package.huggingface.save_hf(config, model, folder / "ours")
    return package, config, model, folder / "ours"


def in_transformers(folder) -> tuple[torch.nn.Module, MtpModel]:
    main = transformers.DeepseekV3ForCausalLM.from_pretrained(folder, attn_implementation="eager")
    # transformers names the MTP layers of the released model alone
    main._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.[{LAYERS}-9]\."]
    return main, MtpModel.from_pretrained(main)


def reference_sums(main, mtp, tokens: np.ndarray) -> list[torch.Tensor]:
    """The cross-entropy of the next token, and of those after it, summed over the targets in rows of one document."""
    ids = parity.as_torch(tokens)
    x = main.model(ids[:, :-1], use_cache=False).last_hidden_state
    sums = [torch.nn.functional.cross_entropy(main.lm_head(x).flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")]
    length = ids.shape[1] - 1
    for depth in range(1, MTP + 1):
        inputs = torch.nn.functional.pad(ids[:, depth:], (0, depth))[:, :length]  # what is padded, no target sees
        positions = torch.arange(depth, depth + length)[None]
        x = mtp.forward_layer(depth - 1, x, positions, None, input_ids=inputs)
        logits, targets = main.lm_head(x)[:, :-depth], ids[:, depth + 1 :]
        sums.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
    return sums


def test_losses_and_gradients(made, tmp_path):
    """Of every tensor, by the names and in the layout of checkpoints, which transformers reads."""
    package, config, model, folder = made
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, FAMILY.length), dtype=np.int32)
    batch = batch_of(tokens, [FAMILY.length - 1])
    gradient = jax.value_and_grad(lambda model: package.step.loss(model, batch, config), has_aux=True)
    (total, sums), gradients = jax.jit(gradient)(model)
    main, mtp = in_transformers(folder)
    expected = reference_sums(main, mtp, tokens)
    np.testing.assert_allclose(sums["cross_entropy"], expected[0].item(), rtol=1e-5)
    np.testing.assert_allclose(sums["mtp_cross_entropy"], [x.item() for x in expected[1:]], rtol=1e-5)
    np.testing.assert_array_equal(sums["mtp_targets"], [2 * (FAMILY.length - 2), 2 * (FAMILY.length - 3)])
    loss = expected[0] + config.mtp_loss_weight * sum(expected[1:])
    np.testing.assert_allclose(total, loss.item(), rtol=1e-5)

    loss.backward()
    theirs = parity.saved_gradients(main, tmp_path)
    for depth, layer in enumerate(mtp.layers):
        own = {
            "enorm": layer.enorm,
            "hnorm": layer.hnorm,
            "eh_proj": layer.eh_proj,
            "shared_head.norm": layer.post_norm,
        }
        prefix = f"model.layers.{LAYERS + depth}."
        theirs |= {f"{prefix}{name}.weight": module.weight.grad.numpy() for name, module in own.items()}
    container = transformers.DeepseekV3ForCausalLM(mtp.config)  # its layers are named as those of any model
    container.model.layers = torch.nn.ModuleList(layer.mtp_block for layer in mtp.layers)
    for name, x in parity.saved_gradients(container, tmp_path / "mtp").items():
        if found := re.match(r"model\.layers\.(\d+)\.(.*)", name):
            theirs[f"model.layers.{LAYERS + int(found[1])}.{found[2]}"] = x
    arrays = {name: np.asarray(x) for name, x in package.parallel.named_arrays(gradients).items()}
    ours = package.huggingface.hf_views(arrays, config)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        error = np.linalg.norm(ours[name] - theirs[name]) / max(np.linalg.norm(theirs[name]), 1e-6)
        assert error < 1e-3, f"{name}: relative error {error}"


def test_round_trip(made, tmp_path):
    """Bit-identical, whether or not the files repeat what the layers share with the model."""
    package, _, model, folder = made
    tensors = load_file(folder / "model.safetensors")
    copies = {"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.head.weight": "lm_head.weight"}
    repeated = {f"model.layers.{LAYERS}.{copy}": tensors[name] for copy, name in copies.items()}
    (tmp_path / "repeated").mkdir()
    (tmp_path / "repeated/config.json").write_text((folder / "config.json").read_text())
    save_file(tensors | repeated, tmp_path / "repeated/model.safetensors")
    for source in folder, tmp_path / "repeated":
        again_config, again = package.huggingface.load_hf(source)
        assert again_config.mtp_layers == MTP
        ours, theirs = (package.parallel.named_arrays(x) for x in (model, again))
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert json.loads((folder / "config.json").read_text())["num_nextn_predict_layers"] == MTP


def test_what_transformers_saves_is_read_without_mtp_layers(made, tmp_path, capsys):
    """Its config.json counts them, and it saves none of their tensors."""
    package, _, _, folder = made
    main, _ = in_transformers(folder)
    main.save_pretrained(tmp_path / "main")
    assert json.loads((tmp_path / "main/config.json").read_text())["num_nextn_predict_layers"] == MTP
    config, model = package.huggingface.load_hf(tmp_path / "main")
    assert config.mtp_layers == 0 and "no tensor is of an MTP layer" in capsys.readouterr().err
    tokens = np.arange(2 * FAMILY.length).reshape(2, -1) % config.vocab_size
    np.testing.assert_allclose(model(tokens), main(parity.as_torch(tokens)).logits.detach(), atol=1e-4)


@pytest.mark.slow
def test_packed_documents_are_as_separate_ones(made):
    package, config, model, _ = made
    tokens, lengths = np.random.default_rng(1).integers(0, config.vocab_size, (1, 25), dtype=np.int32), [9, 1, 11]
    loss = jax.jit(lambda model, batch: package.step.loss(model, batch, config))
    total, sums = loss(model, batch_of(tokens, lengths))
    parts, start = [], 0
    for length in lengths:
        parts.append(loss(model, batch_of(tokens[:, start : start + length + 1], [length])))
        start += length
    np.testing.assert_allclose(total, sum(float(part) for part, _ in parts), rtol=1e-5)
    for name in "mtp_cross_entropy", "mtp_targets", "expert_load":
        np.testing.assert_allclose(sums[name], sum(np.asarray(part[name]) for _, part in parts), rtol=1e-4)
    np.testing.assert_array_equal(sums["mtp_targets"], [8 + 0 + 10, 7 + 0 + 9])


@pytest.mark.slow
def test_logits_do_without_them(made):
    """And decoding, as all that it does is to ask for logits."""
    _, config, model, _ = made
    tokens = np.random.default_rng(2).integers(0, config.vocab_size, (2, 9), dtype=np.int32)
    logits = jax.jit(model.__call__)(tokens)
    without = nnx.clone(model)
    without.mtp = jax.tree.map(lambda x: x * jnp.nan, without.mtp)
    np.testing.assert_array_equal(jax.jit(without.__call__)(tokens), logits)


@pytest.mark.slow
def test_both_losses_fall(made):
    package, config, _, _ = made
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, (2, 17), dtype=np.int32)
    config = dataclasses.replace(config, sequence_length=16, batch_size=2, steps=10, warmup_ratio=0.0)
    config = dataclasses.replace(config, learning_rate=3e-3)
    state, step = (
        package.step.new_state(config),
        jax.jit(functools.partial(package.step.train_step, config=config)),
    )
    history = []
    for _ in range(10):
        state, metrics = step(state, batch_of(tokens, [16]))
        history.append((float(metrics["train/loss"]), float(metrics["train/mtp_loss"])))
    first, last = np.array(history[0]), np.array(history[-1])
    assert (last < 0.9 * first).all(), history
