"""OLMo 2: norms after attention and feed-forward, and over whole queries and keys."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="olmo2",
    model="Olmo2ForCausalLM",
    config="Olmo2Config",
    settings=SMALL | dict(pad_token_id=None),  # the embedding of a padding token has no gradient there
    cases={
        "grouped": Case(),
        "heads_equal": Case(dict(num_key_value_heads=4, rms_norm_eps=1e-3, vocab_size=101)),
        "tied": Case(dict(tie_word_embeddings=True, num_key_value_heads=1, rope_parameters={"rope_theta": 500.0})),
    },
    published={
        "1b": (1.485, "model of transformers for config.json of allenai/OLMo-2-0425-1B"),
        "7b": (7.299, "model of transformers for config.json of allenai/OLMo-2-1124-7B"),
        "13b": (13.716, "model of transformers for config.json of allenai/OLMo-2-1124-13B"),
        "32b": (32.234, "model of transformers for config.json of allenai/OLMo-2-0325-32B"),
    },
)
