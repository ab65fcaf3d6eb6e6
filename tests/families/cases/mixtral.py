"""Mixtral."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="mixtral",
    model="MixtralForCausalLM",
    config="MixtralConfig",
    settings=SMALL | dict(head_dim=8, num_local_experts=4),
    cases={
        "two_of_four": Case(),
        "two_of_three": Case(dict(num_local_experts=3, head_dim=12, vocab_size=101)),
        "all_of_five": Case(dict(num_local_experts=5, num_experts_per_tok=5, intermediate_size=20)),
        "tied": Case(dict(tie_word_embeddings=True)),
    },
    published={
        "8x7b": (46.703, "tensors of mistralai/Mixtral-8x7B-v0.1"),
        "8x22b": (140.630, "tensors of mistralai/Mixtral-8x22B-v0.1"),
    },
)
