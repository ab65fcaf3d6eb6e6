"""Cohere 2."""

from families.cases import SMALL, Case, Family

SETTINGS = SMALL | dict(
    pad_token_id=None,  # the reference gives its row of the embedding no gradient
    num_hidden_layers=4,
    sliding_window=7,
    logit_scale=0.5,
    layer_norm_eps=1e-3,
)

FAMILY = Family(
    architecture="cohere2",
    model="Cohere2ForCausalLM",
    config="Cohere2Config",
    settings=SETTINGS,
    cases={
        "grouped": Case(),
        "unscaled": Case(
            dict(logit_scale=1.0, num_key_value_heads=4, sliding_window=40, rope_parameters={"rope_theta": 500.0})
        ),
        "untied": Case(dict(tie_word_embeddings=False, num_hidden_layers=8, sliding_window=2, vocab_size=101)),
    },
    published={
        "7b": (8.028, "tensors of CohereLabs/c4ai-command-r7b-12-2024"),
        "111b": (111.058, "tensors of CohereLabs/c4ai-command-a-03-2025"),
    },
)
