"""Phi 3: fused projections in its checkpoints, a window in every layer."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="phi3",
    model="Phi3ForCausalLM",
    config="Phi3Config",
    settings=SMALL | dict(sliding_window=7, pad_token_id=None),
    cases={
        "window": Case(),
        "no_window": Case(dict(sliding_window=None, num_key_value_heads=4, vocab_size=101)),
        "width_odd": Case(dict(hidden_size=40, intermediate_size=36, num_key_value_heads=1, sliding_window=3)),
    },
    published={
        "mini": (3.821, "tensors of microsoft/Phi-3-mini-4k-instruct"),
        "medium": (13.960, "tensors of microsoft/Phi-3-medium-4k-instruct"),
    },
)
