"""One projection for keys and values, which differ in norm and rotation alone.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

from generator.language import layers, proceed, requires, splice

requires("global_heads")


@splice("Attention.value")
def _():
    pass


@splice("Attention.values")
def _(k, v):
    v = k


@splice("flops.attention", after="global_heads")
def _(parameters, config):
    proceed()
    parameters -= layers.count * config.width * config.global_head_size * config.global_kv_heads


@splice("hf.structure")
def _():
    yield "attention_k_eq_v", True, "a projection for values"
