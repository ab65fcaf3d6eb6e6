"""GLM 4.5: the experts of DeepSeek V3 behind an attention whose heads are rotated by half."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="glm4_moe",
    model="Glm4MoeForCausalLM",
    config="Glm4MoeConfig",
    settings=SMALL
    | dict(
        num_hidden_layers=3,
        head_dim=16,
        attention_bias=True,
        use_qk_norm=True,
        first_k_dense_replace=1,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=20,
        routed_scaling_factor=2.5,
        num_mtp_layers=0,
    ),
    cases={
        "normed": Case(),
        "plain": Case(
            dict(use_qk_norm=False, attention_bias=False, first_k_dense_replace=2, num_hidden_layers=4, vocab_size=101)
        ),
        "grouped": Case(dict(n_group=4, topk_group=2, n_shared_experts=2, norm_topk_prob=False, num_key_value_heads=1)),
        "tied": Case(
            dict(tie_word_embeddings=True, rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.25})
        ),
    },
    published={
        "106b-a12b": (
            109.227,
            "model of transformers for config.json of zai-org/GLM-4.5-Air: 106.852 billion, and 2.375 in the MTP layer",
        ),
        "355b-a32b": (
            356.786,
            "model of transformers for config.json of zai-org/GLM-4.5: 352.798 billion, and 3.988 in the MTP layer",
        ),
    },
)
