"""Seed-OSS: biases of queries, keys and values, and heads whose size does not follow from the width."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="seed_oss",
    model="SeedOssForCausalLM",
    config="SeedOssConfig",
    settings=SMALL | dict(head_dim=12, pad_token_id=None),
    cases={
        "biased": Case(),
        "biased_out": Case(dict(attention_out_bias=True, num_key_value_heads=1, vocab_size=101)),
        "unbiased": Case(dict(attention_bias=False, tie_word_embeddings=True, rms_norm_eps=1e-3)),
    },
    published={
        "36b": (36.151, "model of transformers for config.json of ByteDance-Seed/Seed-OSS-36B-Instruct"),
    },
)
