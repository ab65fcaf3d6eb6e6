"""Qwen3 with mixtures of experts."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="qwen3_moe",
    model="Qwen3MoeForCausalLM",
    config="Qwen3MoeConfig",
    # intermediate_size: as transformers has it, of no use where each layer has experts
    settings=SMALL
    | dict(
        head_dim=8,
        intermediate_size=6144,
        moe_intermediate_size=20,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
    ),
    cases={
        "sparse": Case(),
        "every_second": Case(dict(intermediate_size=48, decoder_sparse_step=2, num_hidden_layers=4, head_dim=12)),
        "all_but_the_first": Case(dict(intermediate_size=48, mlp_only_layers=[0], num_hidden_layers=3)),
        "weights_free": Case(dict(norm_topk_prob=False, num_experts=7, vocab_size=101)),
    },
    published={
        "30b-a3b": (30.532, "tensors of Qwen/Qwen3-30B-A3B"),
        "235b-a22b": (235.094, "tensors of Qwen/Qwen3-235B-A22B"),
    },
)
