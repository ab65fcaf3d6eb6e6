"""gpt-oss: attention sinks, a window in every other layer, experts with biases and a clamped SwiGLU."""

import math

from families.cases import SMALL, Case, Family
from families.cases.qwen3 import yarn

SETTINGS = (
    SMALL
    | yarn(truncate=False)
    | dict(
        num_hidden_layers=4,
        head_dim=12,
        intermediate_size=20,
        num_local_experts=8,
        num_experts_per_tok=3,
        sliding_window=7,
        experts_implementation="eager",  # the grouped products of PyTorch take no odd sizes
        swiglu_limit=0.5,  # far below the largest of what it clamps
    )
)
FOLLOWS = dict(attention_factor=0.1 * math.log(4) + 1)

FAMILY = Family(
    architecture="gpt_oss",
    model="GptOssForCausalLM",
    config="GptOssConfig",
    settings=SETTINGS,
    cases={
        "grouped": Case(follows=FOLLOWS),
        "unscaled": Case(
            dict(rope_parameters={"rope_type": "default", "rope_theta": 100.0})
            | dict(swiglu_limit=1e6, swiglu_alpha=1.0, num_local_experts=5, num_experts_per_tok=2)
        ),
        "odd": Case(
            yarn(truncate=True, attention_factor=1.3)
            | dict(num_attention_heads=3, num_key_value_heads=1, head_dim=10, intermediate_size=13, vocab_size=101)
            | dict(num_hidden_layers=5, sliding_window=1, num_local_experts=7, num_experts_per_tok=7)
        ),
        "every_fourth": Case(
            dict(num_hidden_layers=8, layer_types=2 * (3 * ["sliding_attention"] + ["full_attention"]))
            | dict(sliding_window=40),
            follows=FOLLOWS,
        ),
        "full": Case(dict(layer_types=4 * ["full_attention"], num_hidden_layers=4), follows=FOLLOWS),
    },
    published={
        "20b": (
            20.915,
            "tensors of openai/gpt-oss-20b, dequantized; 20.91 in its model card, arXiv 2508.10925, table 1",
        ),
        "120b": (116.83, "its model card, arXiv 2508.10925, table 1"),
    },
)
