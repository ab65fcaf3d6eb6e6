"""ERNIE 4.5: pairs of neighbours are rotated."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="ernie4_5",
    model="Ernie4_5ForCausalLM",
    config="Ernie4_5Config",
    settings=SMALL | dict(head_dim=12, pad_token_id=None),
    cases={
        "tied": Case(),
        "untied": Case(dict(tie_word_embeddings=False, num_key_value_heads=4, vocab_size=101, rms_norm_eps=1e-3)),
        "multi_query": Case(dict(num_key_value_heads=1, rope_parameters={"rope_theta": 100.0})),
    },
    published={
        "0_3b": (0.361, "model of transformers for config.json of baidu/ERNIE-4.5-0.3B-PT"),
    },
)
