"""Granite 3: constant factors of embeddings, residual branches, attention scores and logits."""

from families.cases import SMALL, Case, Family

FACTORS = dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=0.7)

FAMILY = Family(
    architecture="granite",
    model="GraniteForCausalLM",
    config="GraniteConfig",
    settings=SMALL | FACTORS | dict(tie_word_embeddings=True),
    cases={
        "scaled": Case(),
        "untied": Case(dict(tie_word_embeddings=False, num_key_value_heads=1, vocab_size=101, rms_norm_eps=1e-3)),
        "unscaled": Case({name: 1.0 for name in FACTORS}),
        "biased": Case(dict(attention_bias=True)),
    },
    published={
        "2b": (2.534, "model of transformers for config.json of ibm-granite/granite-3.0-2b-base"),
        "8b": (8.171, "model of transformers for config.json of ibm-granite/granite-3.0-8b-base"),
    },
)
