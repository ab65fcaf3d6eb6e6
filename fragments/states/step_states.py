"""The recurrent states that a step of an engine reads and writes."""

import jax.numpy as jnp

from generator.language import requires
from generator.language.roles import RecurrentState, States, StepInput

requires("states")


def states_of(pool: RecurrentState, step: StepInput) -> States:
    """Returns the states of a step, which keeps that after its last token, or one after each draft token."""
    columns = step.states_written.shape[1]
    counts = step.counts[:, None] if columns == 1 else 1 + jnp.arange(columns)[None]
    return States(pool, step.states_read, step.states_written, jnp.broadcast_to(counts, step.states_written.shape))
