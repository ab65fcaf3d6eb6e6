"""Heads of another size, and another number of key and value heads, in layers with full attention.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

from generator.language import layers, proceed, splice
from generator.language.roles import Norm, PositiveInt


class ModelConfig:
    global_head_size: PositiveInt  # size of one head in layers with full attention
    global_kv_heads: PositiveInt  # key and value heads there


@splice("check_config.together")
def _(config, problems):
    if config.heads % config.global_kv_heads:
        problems.append(f"--global-kv-heads {config.global_kv_heads}: must divide --heads {config.heads}")
    if config.global_head_size % 2:
        problems.append(f"--global-head-size {config.global_head_size}: must be even, as pairs of numbers are rotated")


@splice("Attention.sizes")
def _(config, D, N, H):
    D, N, H = config.width, config.heads, config.global_head_size


@splice("Attention.kv_heads")
def _(config, K):
    K = config.global_kv_heads


@splice("Attention.query_key_norms")
def _(self, config):
    self.query_norm = Norm(config.global_head_size, config.norm_epsilon)
    self.key_norm = Norm(config.global_head_size, config.norm_epsilon)


@splice("flops.attention")
def _(parameters, attention, config):
    proceed()
    # beyond what these layers would have with heads as in the others
    wider = config.global_head_size * (config.heads + config.global_kv_heads)
    wider -= config.head_size * (config.heads + config.kv_heads)
    parameters += 2 * layers.count * config.width * wider
    taller = config.global_head_size - config.head_size
    attention += 12 * config.heads * taller * layers.count * config.sequence_length


@splice("hf.sizes")
def _():
    yield "global_head_dim", "global_head_size"
    yield "num_global_key_value_heads", "global_kv_heads"
