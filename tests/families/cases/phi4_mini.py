"""Phi 4 mini: a part of each head is rotated, by frequencies that depend on the length of the sequence."""

from families.cases import SMALL, Case, Family


def rope(original, share, pairs, context=128):
    factors = dict(short_factor=[1.0 + n / 8 for n in range(pairs)], long_factor=[2.0 + n / 3 for n in range(pairs)])
    parameters = dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=share) | factors
    return dict(rope_parameters=parameters, original_max_position_embeddings=original, max_position_embeddings=context)


FAMILY = Family(
    architecture="phi4_mini",
    model="Phi3ForCausalLM",
    config="Phi3Config",
    settings=SMALL
    | dict(sliding_window=20, pad_token_id=None, tie_word_embeddings=True, hidden_size=64)
    | rope(original=4, share=0.75, pairs=6),
    cases={
        "long": Case(),  # all that is compared is longer than the original context
        "short_and_long": Case(rope(original=24, share=0.5, pairs=4) | dict(num_key_value_heads=1, vocab_size=101)),
        "context_original": Case(rope(original=128, share=1.0, pairs=8)),
        "unscaled": Case(
            dict(
                rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.25},
                original_max_position_embeddings=4096,
            )
        ),
    },
    published={"mini": (3.836, "tensors of microsoft/Phi-4-mini-instruct")},
)
