"""A selective state space with a decay for each number of its state, in chunks of tokens.

Source: Gu and Dao 2023, arXiv 2312.00752, section 3.3.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import join_chunks, linear_recurrence, split_chunks


def selective_scan(
    x: Array, step: Array, rate: Array, write: Array, read: Array, state: Array, segment_ids: Array | None
) -> tuple[Array, Array]:
    """Reads from a state of each channel that all tokens before in a segment have written.

    A token multiplies the state [M, S] by exp(-step * rate), adds step * x at `write`, and reads it at `read`.

    Args:
        x, step: [B, T, M].
        rate: [M, S], positive.
        write, read: [B, T, S]; all of these in fp32, as the state sums over many tokens.
        state: [B, M, S], before the first token.
        segment_ids: [B, T]; the state is 0 before the first token of a later segment.

    Returns:
        What the tokens read, [B, T, M], and the state after the last one.
    """
    B, T = x.shape[:2]
    is_first = jnp.zeros((B, T), bool)  # of a later segment
    if segment_ids is not None:
        is_first = is_first.at[:, 1:].set(segment_ids[:, 1:] != segment_ids[:, :-1])

    @functools.partial(jax.checkpoint, prevent_cse=False)  # states of all tokens would be kept
    def read_chunk(state, chunk):
        x, step, write, read, is_first = (array[:, 0] for array in chunk)  # [B, C, ...]
        decay = jnp.where(is_first, 0, jnp.exp(-step[..., None] * rate))  # [B, C, M, S]
        states = linear_recurrence((step * x)[..., None] * write[:, :, None], decay, state)
        return states[:, -1], jnp.einsum("BCMS,BCS->BCM", states, read)[:, None]

    inputs = [split_chunks(array[:, :, None]) for array in (x, step, write, read, is_first[..., None, None])]
    state, y = jax.lax.scan(read_chunk, state, inputs)
    return join_chunks(y, T)[:, :, 0], state
