"""What tests of engines expect of a model whose layers all have a recurrent state."""

import jax

from generator.language import requires, splice
from generator.language.roles import WIDE, Engine, EngineSettings

requires("recurrent_step")


@splice("scoring.full")
def _(model, full):
    full = jax.jit(lambda tokens, _: jax.nn.log_softmax(model(tokens)))  # which knows no positions


@splice("test_engine.no_room")
def _(model):
    sizes = EngineSettings(max_sequences=4, max_length=160, page_size=4, kv_cache_tokens=2_000_000_000)
    # pages count tokens on the host: those of running sequences and of kept states
    assert Engine(WIDE, model, frozenset(), sizes).pages == (4 + 16) * 40
