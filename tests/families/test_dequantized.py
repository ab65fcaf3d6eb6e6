"""Weights that are published quantized: equal to what transformers makes of them, in fp32."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from families.weaving import woven


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    names = "gpt_oss", "deepseek_v3"
    return {name: woven(name, "cpu", folder) for name in names}


def opened(package, folder, tensors):
    save_file(tensors, folder / "model.safetensors")
    return package.huggingface.open_hf(folder)


def test_mxfp4(packages, tmp_path):
    torch.manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 5, 16), dtype=torch.uint8)
    scales = torch.randint(90, 140, (3, 10, 5), dtype=torch.uint8)
    name = "model.layers.0.mlp.experts.down_proj"
    tensors = opened(packages["gpt_oss"], tmp_path, {f"{name}_blocks": blocks, f"{name}_scales": scales})
    assert tensors.keys() == {name}
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    assert tensors[name].get_shape() == list(expected.shape) == [3, 160, 10]
    np.testing.assert_array_equal(tensors[name][...], expected)


@pytest.mark.parametrize("shape", [(256, 384), (128, 128), (200, 130), (576, 256), (24, 32)])
def test_fp8_blocks(packages, tmp_path, shape):
    torch.manual_seed(0)
    weight = torch.randn(shape).to(torch.float8_e4m3fn)
    scales = torch.rand([-(-size // 128) for size in shape]) + 0.01
    tensors = {"kept": torch.ones(3), "a.weight": weight, "a.weight_scale_inv": scales}
    tensors = opened(packages["deepseek_v3"], tmp_path, tensors)
    assert tensors.keys() == {"kept", "a.weight"}
    assert tensors["a.weight"].get_shape() == list(shape)
    found = tensors["a.weight"][...]
    np.testing.assert_array_equal(found, _dequantize_fp8_weight(weight, scales, [128, 128], torch.float32))
    if not shape[0] % 128 and not shape[1] % 128:  # it takes whole blocks alone
        theirs = Fp8Dequantize(None)._dequantize_one(weight, scales, output_dtype=torch.float32)
        np.testing.assert_array_equal(found, theirs)


def test_a_matrix_without_its_scales_is_named(packages, tmp_path):
    weight = torch.ones(130, 130).to(torch.float8_e4m3fn)
    tensors = opened(packages["deepseek_v3"], tmp_path, {"a.weight": weight, "b.weight_scale_inv": torch.ones(2, 2)})
    assert {name: x.get_dtype() for name, x in tensors.items()} == {"a.weight": "F8_E4M3", "b.weight_scale_inv": "F32"}
    tensors = {"a.weight": weight, "a.weight_scale_inv": torch.ones(1, 2)}
    assert opened(packages["deepseek_v3"], tmp_path, tensors).keys() == tensors.keys()


def test_a_quantized_checkpoint_is_loaded_and_exported_without(packages, tmp_path):
    """Its model is that of the dequantized numbers, and what is exported says nothing of quantization."""
    package = packages["gpt_oss"]
    config = package.config.PRESETS["tiny"]
    config = dataclasses.replace(config, width=32, expert_width=32, experts=4, heads=2, kv_heads=1, layers=2)
    package.huggingface.save_hf(config, package.model.Decoder(config, nnx.Rngs(0)), tmp_path / "hf")
    path = tmp_path / "hf/model.safetensors"
    tensors, expected = load_file(path), {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, wide, rows = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, rows, wide // 32, 16), dtype=torch.uint8)
        scales = torch.full((experts, rows, wide // 32), 121, dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        expected[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(tensors, path)
    hf = json.loads((tmp_path / "hf/config.json").read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "hf/config.json").write_text(json.dumps(hf))
    package.huggingface.save_hf(*package.huggingface.load_hf(tmp_path / "hf"), tmp_path / "ours")
    ours = load_file(tmp_path / "ours/model.safetensors")
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    assert "quantization_config" not in json.loads((tmp_path / "ours/config.json").read_text())
    other = hf | {"quantization_config": {"quant_method": "gptq"}}
    (tmp_path / "hf/config.json").write_text(json.dumps(other))
    with pytest.raises(package.errors.InputError, match=r'quantization_config is {"quant_method": "gptq"}, and this'):
        package.huggingface.load_hf(tmp_path / "hf")
