"""SmolLM3: every fourth layer does not rotate its queries and keys."""

from families.cases import SMALL, Case, Family

FAMILY = Family(
    architecture="smollm3",
    model="SmolLM3ForCausalLM",
    config="SmolLM3Config",
    settings=SMALL | dict(num_hidden_layers=4, pad_token_id=None, tie_word_embeddings=True),
    cases={
        "every_fourth": Case(dict(num_hidden_layers=8)),
        "every_second": Case(
            dict(no_rope_layer_interval=2, num_key_value_heads=1, vocab_size=101, tie_word_embeddings=False)
        ),
        "none_without": Case(dict(num_hidden_layers=3, num_key_value_heads=4)),
    },
    published={"3b": (3.075, "tensors of HuggingFaceTB/SmolLM3-3B")},
)
