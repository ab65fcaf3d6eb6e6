"""DeepSeek V3: latent attention, a rotation stretched by YaRN, and experts in groups after dense layers."""

import math

from families.cases import SMALL, Case, Family


def rope(**settings):
    scaling = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=1.0)
    lengths = dict(original_max_position_embeddings=16)
    return dict(rope_parameters=scaling | lengths | dict(mscale=1.0, mscale_all_dim=1.0) | settings)


WRITTEN_OUT = dict(attention_factor=1.0, truncate=True)

FAMILY = Family(
    architecture="deepseek_v3",
    model="DeepseekV3ForCausalLM",
    config="DeepseekV3Config",
    settings=SMALL
    | dict(
        num_hidden_layers=3,
        num_key_value_heads=4,
        q_lora_rank=12,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=6,
        v_head_dim=10,
        first_k_dense_replace=1,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        moe_intermediate_size=20,
        num_mtp_layers=0,
    )
    | rope(),
    cases={
        "yarn": Case(follows=WRITTEN_OUT),
        # neither a latent for queries, nor scaled frequencies, groups, weights that sum to one, or pairs of neighbours
        "plain": Case(
            dict(
                q_lora_rank=None,
                rope_parameters={"rope_type": "default", "rope_theta": 100.0},
                rope_interleave=False,
                n_group=1,
                topk_group=1,
                norm_topk_prob=False,
                routed_scaling_factor=1.0,
            )
        ),
        "odd": Case(
            rope(mscale=0.7, mscale_all_dim=0.7, factor=8.0)
            | dict(
                num_hidden_layers=4,
                first_k_dense_replace=2,
                num_attention_heads=3,
                num_key_value_heads=3,
                v_head_dim=16,
                qk_rope_head_dim=4,
                n_routed_experts=9,
                num_experts_per_tok=2,
                n_group=3,
                topk_group=1,
                n_shared_experts=2,
                vocab_size=101,
                rms_norm_eps=1e-3,
            ),
            follows=WRITTEN_OUT,
        ),
        "scores_unscaled": Case(  # and tied, without a latent for queries, more experts for a token than a group has
            rope(mscale=None, mscale_all_dim=None, factor=2.5, original_max_position_embeddings=24, truncate=False)
            | dict(tie_word_embeddings=True, q_lora_rank=None, num_experts_per_tok=4, n_group=2, topk_group=2),
            follows=dict(attention_factor=0.1 * math.log(2.5) + 1, mscale=0.0, mscale_all_dim=0.0),
        ),
    },
    published={"671b": (682.636, "arXiv 2412.19437, section 4.2: 671 billion, and 11.6 in the MTP layer")},
)
