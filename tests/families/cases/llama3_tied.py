"""Llama 3.2: Llama 3.1 with tied embeddings."""

from families.cases import SMALL, Case, Family
from families.cases.llama3 import rope

FAMILY = Family(
    architecture="llama3_tied",
    model="LlamaForCausalLM",
    config="LlamaConfig",
    settings=SMALL | rope() | dict(tie_word_embeddings=True),
    cases={
        "grouped": Case(),
        "stretched_more": Case(rope(factor=32.0) | dict(num_key_value_heads=4, vocab_size=101)),
        "context_original": Case(dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5})),
    },
    published={
        "1b": (1.236, "tensors of meta-llama/Llama-3.2-1B"),
        "3b": (3.213, "tensors of meta-llama/Llama-3.2-3B"),
    },
)
