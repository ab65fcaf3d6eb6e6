"""Hunyuan dense: heads are normed after their rotation, whose base grows with alpha."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="hunyuan_v1_dense",
    model="HunYuanDenseV1ForCausalLM",
    config="HunYuanDenseV1Config",
    settings=SMALL
    | dict(
        head_dim=12,
        pad_token_id=None,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 50.0, "factor": 1.0},
    ),
    cases={
        "stretched": Case(),
        "unstretched": Case(dict(rope_parameters={"rope_theta": 500.0}, num_key_value_heads=1, vocab_size=101)),
        "untied": Case(dict(tie_word_embeddings=False, attention_bias=True, rms_norm_eps=1e-3)),
    },
    published={
        "0_5b": (0.539, "model of transformers for config.json of tencent/Hunyuan-0.5B-Instruct"),
        "7b": (7.505, "model of transformers for config.json of tencent/Hunyuan-7B-Instruct"),
    },
)
