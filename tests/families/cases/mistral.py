"""Mistral."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="mistral",
    model="MistralForCausalLM",
    config="MistralConfig",
    settings=SMALL | dict(sliding_window=7),
    cases={
        "window": Case(),
        "window_of_three": Case(dict(sliding_window=3, head_dim=12, vocab_size=101)),
        "window_beyond_all": Case(dict(sliding_window=64, num_key_value_heads=4)),
        "no_window": Case(dict(sliding_window=None)),
    },
    published={"7b": (7.242, "tensors of mistralai/Mistral-7B-v0.1")},
)
