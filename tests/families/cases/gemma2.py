"""Gemma 2."""

from families.cases import SMALL, Case, Family

SETTINGS = SMALL | dict(
    pad_token_id=None,  # the reference gives its row of the embedding no gradient
    num_hidden_layers=4,
    head_dim=12,
    sliding_window=7,
    use_bidirectional_attention=False,  # which null means as well
    query_pre_attn_scalar=20,
    attn_logit_softcapping=2.0,  # far below the largest score and logit, so that both caps are felt
    final_logit_softcapping=3.0,
)

FAMILY = Family(
    architecture="gemma2",
    model="Gemma2ForCausalLM",
    config="Gemma2Config",
    settings=SETTINGS,
    cases={
        "grouped": Case(),
        "uncapped": Case(dict(attn_logit_softcapping=None, final_logit_softcapping=None)),
        "untied": Case(dict(tie_word_embeddings=False, sliding_window=2, vocab_size=101)),
        "multi_query": Case(dict(num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=40)),
    },
    published={
        "2b": (2.614, "tensors of google/gemma-2-2b"),
        "9b": (9.242, "tensors of google/gemma-2-9b"),
        "27b": (27.227, "tensors of google/gemma-2-27b"),
    },
)
