"""Nemotron: layer norms of a scale around 1, a squared ReLU, and the first half of each head rotated."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="nemotron",
    model="NemotronForCausalLM",
    config="NemotronConfig",
    settings=SMALL | dict(head_dim=16),
    cases={
        "half_rotated": Case(),
        "norms_soft": Case(dict(norm_eps=1e-2, num_key_value_heads=1, vocab_size=101)),
        "quarter_rotated": Case(
            dict(tie_word_embeddings=True, rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.25})
        ),
    },
    published={
        "4b": (4.191, "model of transformers for config.json of nvidia/Nemotron-Mini-4B-Instruct"),
        "8b": (8.272, "model of transformers for config.json of nvidia/Minitron-8B-Base"),
    },
)
