"""Llama 3.1: the frequencies of the rotation are scaled."""

from families.cases import SMALL, Case, Family


def rope(**settings):
    scaling = dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    return dict(rope_parameters=scaling | dict(original_max_position_embeddings=64) | settings)


FAMILY = Family(
    architecture="llama3",
    model="LlamaForCausalLM",
    config="LlamaConfig",
    settings=SMALL | rope(),
    cases={
        "grouped": Case(),
        "heads_odd": Case(
            rope(factor=32.0, high_freq_factor=3.5, original_max_position_embeddings=13)
            | dict(num_key_value_heads=1, head_dim=12, vocab_size=101)
        ),
        "context_original": Case(dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5})),
    },
    published={
        "8b": (8.030, "tensors of meta-llama/Llama-3.1-8B"),
        "70b": (70.554, "tensors of meta-llama/Llama-3.1-70B"),
        "405b": (405.85, "tensors of meta-llama/Llama-3.1-405B"),
    },
)
