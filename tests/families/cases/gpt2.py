"""GPT-2."""

from families.cases import Case, Family

SETTINGS = dict(
    vocab_size=96,
    n_embd=32,
    n_inner=48,
    n_layer=2,
    n_head=4,
    n_positions=64,
    initializer_range=0.2,
    layer_norm_epsilon=1e-3,
)

FAMILY = Family(
    architecture="gpt2",
    model="GPT2LMHeadModel",
    config="GPT2Config",
    settings=SETTINGS,
    cases={
        "tied": Case(),
        "untied": Case(dict(tie_word_embeddings=False, vocab_size=101)),
        "one_head": Case(dict(n_embd=20, n_head=1, n_inner=28, n_positions=33)),
    },
    published={
        "124m": (0.124, "tensors of openai-community/gpt2"),
        "355m": (0.355, "tensors of openai-community/gpt2-medium"),
        "774m": (0.774, "tensors of openai-community/gpt2-large"),
        "1558m": (1.558, "tensors of openai-community/gpt2-xl"),
    },
)
