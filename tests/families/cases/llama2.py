"""Llama 2."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="llama2",
    model="LlamaForCausalLM",
    config="LlamaConfig",
    settings=SMALL,
    cases={
        "grouped": Case(),
        "tied": Case(dict(tie_word_embeddings=True)),
        "scaled": Case(
            dict(
                rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0)
                | dict(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
            )
        ),
        "biased": Case(dict(attention_bias=True)),
        "linear": Case(dict(rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=4.0))),
        "heads_free": Case(dict(num_key_value_heads=4, head_dim=12, vocab_size=101)),
    },
    published={
        "7b": (6.738, "tensors of meta-llama/Llama-2-7b-hf"),
        "13b": (13.016, "tensors of meta-llama/Llama-2-13b-hf"),
        "70b": (68.977, "tensors of meta-llama/Llama-2-70b-hf"),
    },
)
