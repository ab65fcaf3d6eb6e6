"""OLMoE."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="olmoe",
    model="OlmoeForCausalLM",
    config="OlmoeConfig",
    # pad_token_id: the embedding of a padding token has no gradient there
    settings=SMALL
    | dict(pad_token_id=None, num_key_value_heads=4, intermediate_size=20, num_experts=8, num_experts_per_tok=3),
    cases={
        "weights_free": Case(),
        "grouped": Case(dict(num_key_value_heads=2, num_experts=7, vocab_size=101, rms_norm_eps=1e-3)),
        "normalised": Case(dict(norm_topk_prob=True)),
        "one_of_three": Case(dict(num_experts=3, num_experts_per_tok=1, tie_word_embeddings=True)),
        "clipped": Case(dict(clip_qkv=0.5)),
    },
    published={"1b-7b": (6.919, "tensors of allenai/OLMoE-1B-7B-0924")},
)
