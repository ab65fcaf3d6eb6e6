"""FLOPs against published counts."""

from generator.language.roles import PRESETS, flops_per_token


def test_flops_of_llama2_7b():
    config = PRESETS["7b"]
    assert round(flops_per_token(config, causal=False) / 1e9, 1) == 46.1
    assert round(flops_per_token(config, causal=True) / 1e9, 1) == 42.9
