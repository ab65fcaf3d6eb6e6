"""EXAONE 4.0: three layers with a window and a rotation, then one that has neither."""

from families.cases import SMALL, Case, Family

SCALED = dict(
    rope_type="llama3",
    rope_theta=100.0,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)

FAMILY = Family(
    architecture="exaone4",
    model="Exaone4ForCausalLM",
    config="Exaone4Config",
    settings=SMALL | dict(num_hidden_layers=4, head_dim=12, sliding_window=7, rope_parameters=SCALED),
    cases={
        "every_fourth": Case(),
        "every_second": Case(dict(sliding_window_pattern=2, num_key_value_heads=1, sliding_window=2, vocab_size=101)),
        "no_window": Case(
            dict(sliding_window=None, layer_types=["full_attention"] * 3, num_hidden_layers=3, tie_word_embeddings=True)
        ),
        "unscaled": Case(dict(rope_parameters={"rope_theta": 500.0}, num_hidden_layers=8, rms_norm_eps=1e-3)),
    },
    published={
        "32b": (32.003, "model of transformers for config.json of LGAI-EXAONE/EXAONE-4.0-32B"),
    },
)
