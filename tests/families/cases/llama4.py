"""Llama 4: chunked attention, layers without rotation, and experts beside one that all tokens go to."""

from families.cases import SMALL, Case, Family


def rope(low, high):
    scaled = dict(rope_type="llama3", factor=4.0, low_freq_factor=low, high_freq_factor=high)
    return dict(rope_parameters=scaled | dict(rope_theta=100.0, original_max_position_embeddings=16))


SETTINGS = SMALL | dict(
    num_hidden_layers=4,
    head_dim=12,
    intermediate_size=20,
    num_local_experts=5,
    num_experts_per_tok=2,
    attention_chunk_size=7,
    floor_scale=5,  # so that the temperature changes several times in what is compared
    attn_scale=0.4,
)
UNSCALED = dict(rope_parameters={"rope_type": "default", "rope_theta": 100.0})
# the last two as transformers has them, of no use without a temperature
NO_TEMPERATURE = dict(attn_temperature_tuning=False, attn_scale=0.1, floor_scale=8192)

FAMILY = Family(
    architecture="llama4",
    model="Llama4ForCausalLM",
    config="Llama4TextConfig",
    settings=SETTINGS,
    cases={
        "scout": Case(rope(low=1.0, high=3.0) | dict(num_hidden_layers=8)),
        # the released rope: frequencies are scaled or not, with nothing in between
        "one_expert": Case(
            rope(low=1.0, high=1.0) | dict(num_experts_per_tok=1, num_key_value_heads=1, attention_chunk_size=16)
        ),
        "plain": Case(
            UNSCALED
            | NO_TEMPERATURE
            | dict(use_qk_norm=False, tie_word_embeddings=True, attention_chunk_size=40, vocab_size=101)
        ),
        # all rotated, as the bias of keys has a gradient of 0 where they are not
        "biased": Case(UNSCALED | NO_TEMPERATURE | dict(attention_bias=True, no_rope_layers=[1, 1, 1, 1])),
        "all_kinds": Case(
            rope(low=1.0, high=3.0)
            | dict(
                num_hidden_layers=6,
                interleave_moe_layer_step=2,
                no_rope_layers=[1, 1, 0, 1, 1, 0],
                intermediate_size_mlp=36,
                num_local_experts=3,
                attention_chunk_size=5,
            )
        ),
    },
    published={"17b-16e": (107.77, "tensors of meta-llama/Llama-4-Scout-17B-16E but the 0.872 of its vision")},
)
