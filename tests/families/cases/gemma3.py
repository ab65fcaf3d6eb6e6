"""Gemma 3, the text model."""

from families.cases import SMALL, Case, Family

SETTINGS = SMALL | dict(
    pad_token_id=None,  # the reference gives its row of the embedding no gradient
    num_hidden_layers=8,  # a period and two
    head_dim=12,
    sliding_window=7,
    query_pre_attn_scalar=20,
    rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
)

FAMILY = Family(
    architecture="gemma3",
    model="Gemma3ForCausalLM",
    config="Gemma3TextConfig",
    settings=SETTINGS,
    cases={
        "grouped": Case(),
        "unscaled": Case(dict(rope_parameters=None, num_key_value_heads=1, sliding_window=40)),
        "whole_periods": Case(dict(num_hidden_layers=6, head_dim=8, query_pre_attn_scalar=8, sliding_window=2)),
        "untied": Case(dict(tie_word_embeddings=False, num_hidden_layers=7, vocab_size=101)),
    },
    published={
        "270m": (0.268, "tensors of google/gemma-3-270m"),
        "1b": (1.000, "tensors of google/gemma-3-1b-pt"),
        "4b": (3.880, "tensors of the text model in google/gemma-3-4b-pt"),
        "12b": (11.766, "tensors of the text model in google/gemma-3-12b-pt"),
        "27b": (27.009, "tensors of the text model in google/gemma-3-27b-pt"),
    },
)
