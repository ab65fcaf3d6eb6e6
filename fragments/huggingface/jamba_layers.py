"""Jamba's layers in config.json: attention once in each period."""

from generator.language import setting, splice


@splice("hf.structure")
def _():
    yield "attn_layer_period", setting("attention_period"), "layers of that pattern"
    yield "attn_layer_offset", setting("attention_offset"), "layers of that pattern"
