"""Qwen 2 and 2.5: biases on query, key and value; a window on the upper layers where it is on."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="qwen2",
    model="Qwen2ForCausalLM",
    config="Qwen2Config",
    settings=SMALL,
    cases={
        "grouped": Case(),
        "heads_odd": Case(dict(num_key_value_heads=1, head_dim=12, vocab_size=101)),
        "upper_window": Case(dict(num_hidden_layers=5, use_sliding_window=True, sliding_window=7, max_window_layers=2)),
    },
    published={
        "7b": (7.616, "tensors of Qwen/Qwen2.5-7B"),
        "14b": (14.770, "tensors of Qwen/Qwen2.5-14B"),
        "32b": (32.764, "tensors of Qwen/Qwen2.5-32B"),
        "72b": (72.706, "tensors of Qwen/Qwen2.5-72B"),
    },
)
