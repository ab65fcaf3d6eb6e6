"""The small sizes of Qwen 3, with tied embeddings."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="qwen3_tied",
    model="Qwen3ForCausalLM",
    config="Qwen3Config",
    settings=SMALL | dict(head_dim=16, tie_word_embeddings=True),
    cases={
        "grouped": Case(),
        "heads_equal": Case(dict(num_key_value_heads=4, vocab_size=101)),
        "bases": Case(dict(rms_norm_eps=1e-3, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    },
    published={
        "0_6b": (0.596, "tensors of Qwen/Qwen3-0.6B"),
        "1_7b": (1.721, "tensors of Qwen/Qwen3-1.7B"),
        "4b": (4.022, "tensors of Qwen/Qwen3-4B"),
    },
)
