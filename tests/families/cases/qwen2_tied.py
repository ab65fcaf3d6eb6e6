"""The small sizes of Qwen 2 and 2.5, with tied embeddings."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="qwen2_tied",
    model="Qwen2ForCausalLM",
    config="Qwen2Config",
    settings=SMALL | dict(tie_word_embeddings=True),
    cases={
        "grouped": Case(),
        "heads_equal": Case(dict(num_key_value_heads=4, vocab_size=101)),
        "bases": Case(dict(rms_norm_eps=1e-3, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    },
    published={
        "0_5b": (0.494, "tensors of Qwen/Qwen2.5-0.5B"),
        "1_5b": (1.544, "tensors of Qwen/Qwen2.5-1.5B"),
        "3b": (3.086, "tensors of Qwen/Qwen2.5-3B"),
    },
)
