"""Llama 4 Maverick: experts in every second layer, and no norms on query and key."""

from families.cases import Case, Family
from families.cases.llama4 import NO_TEMPERATURE, SETTINGS, UNSCALED

FAMILY = Family(
    architecture="llama4_maverick",
    model="Llama4ForCausalLM",
    config="Llama4TextConfig",
    settings=SETTINGS | dict(interleave_moe_layer_step=2, intermediate_size_mlp=36, use_qk_norm=False),
    cases={
        "maverick": Case(UNSCALED),
        "plain": Case(UNSCALED | NO_TEMPERATURE | dict(tie_word_embeddings=True, num_hidden_layers=8)),
    },
    published={"17b-128e": (400.71, "tensors of meta-llama/Llama-4-Maverick-17B-128E but the 0.872 of its vision")},
)
