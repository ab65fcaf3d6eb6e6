"""GLM 4: a norm before and after each part, and the first half of each head rotated, in pairs of neighbours."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="glm4",
    model="Glm4ForCausalLM",
    config="Glm4Config",
    settings=SMALL | dict(head_dim=16, attention_bias=False, pad_token_id=None),
    cases={
        "half_rotated": Case(),
        "biased": Case(dict(attention_bias=True, num_key_value_heads=1, vocab_size=101, rms_norm_eps=1e-3)),
        "quarter_rotated": Case(
            dict(tie_word_embeddings=True, rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.25})
        ),
    },
    published={
        "9b": (9.4, "model of transformers for config.json of THUDM/GLM-4-9B-0414"),
        "32b": (32.566, "model of transformers for config.json of THUDM/GLM-4-32B-0414"),
    },
)
