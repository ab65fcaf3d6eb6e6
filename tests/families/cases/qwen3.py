"""Qwen 3: norms on query and key heads, whose size does not follow from the width."""

import math

from families.cases import SMALL, Case, Family


def yarn(**settings):
    scaling = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=0.5)
    return dict(rope_parameters=scaling | dict(original_max_position_embeddings=16) | settings)


FAMILY = Family(
    architecture="qwen3",
    model="Qwen3ForCausalLM",
    config="Qwen3Config",
    settings=SMALL | dict(head_dim=16),
    cases={
        "grouped": Case(),
        "heads_odd": Case(dict(num_key_value_heads=1, head_dim=6, vocab_size=101)),
        "heads_equal": Case(dict(head_dim=8, num_key_value_heads=4)),
        "yarn": Case(yarn(), follows=dict(attention_factor=0.1 * math.log(4) + 1, truncate=True)),
        "yarn_untruncated": Case(yarn(truncate=False, factor=3.0, attention_factor=1.3) | dict(head_dim=6)),
        "upper_window": Case(dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=2)),
    },
    published={
        "8b": (8.191, "tensors of Qwen/Qwen3-8B"),
        "14b": (14.768, "tensors of Qwen/Qwen3-14B"),
        "32b": (32.762, "tensors of Qwen/Qwen3-32B"),
    },
)
