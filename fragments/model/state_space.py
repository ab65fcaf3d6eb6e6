"""A selective state space with a scalar decay for each head, in chunks of tokens.

Source: Dao and Gu 2024, arXiv 2405.21060, section 6.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import CHUNK, join_chunks, split_chunks, sums_between


def scan_states(
    x: Array, decay: Array, write: Array, read: Array, state: Array, segment_ids: Array | None
) -> tuple[Array, Array]:
    """Reads from a state of each head that all tokens before in a segment have written.

    A token multiplies the state [S, H] by exp(decay), adds x at `write`, and reads it at `read`.

    Args:
        x: [B, T, N, H].
        decay: [B, T, N], at most 0.
        write, read: [B, T, N, S]; all of these in fp32, as the state sums over many tokens.
        state: [B, N, S, H], before the first token.
        segment_ids: [B, T]; the state is 0 before the first token of a later segment.

    Returns:
        What the tokens read, [B, T, N, H], and the state after the last one.
    """
    B, T = x.shape[:2]
    if segment_ids is None:
        segment_ids = jnp.zeros((B, T), jnp.int32)
    inputs = [split_chunks(array) for array in (x, decay, write, read)]
    segment_ids = jnp.pad(segment_ids, [(0, 0), (0, -T % CHUNK)], "edge")  # padding is no segment of its own
    segments = split_chunks(segment_ids[:, :, None])  # [T / C, B, 1, C]
    causal = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    def read_chunk(carry, chunk):
        state, last = carry  # [B, N, S, H], and the segment [B, 1, 1] of the token before
        (x, decay, write, read), segment = chunk
        between = sums_between(decay)  # [B, N, C, C]
        since_start = jnp.exp(jnp.cumsum(decay, axis=-1))  # [B, N, C]
        is_seen = causal & (segment[..., :, None] == segment[..., None, :])  # [B, 1, C, C]
        kept = jnp.exp(jnp.where(is_seen, between, -jnp.inf))  # of what a token wrote
        from_start = jnp.where(segment == last, since_start, 0)[..., None]  # of the state before, [B, N, C, 1]
        to_end = jnp.where(segment == segment[..., -1:], jnp.exp(between[..., -1, :]), 0)[..., None]
        scores = jnp.einsum("BNCS,BNDS->BNCD", read, write) * kept
        y = from_start * jnp.einsum("BNCS,BNSH->BNCH", read, state) + jnp.einsum("BNCD,BNDH->BNCH", scores, x)
        state = from_start[..., -1:, :] * state + jnp.einsum("BNCS,BNCH->BNSH", to_end * write, x)
        return (state, segment[..., -1:]), y

    (state, _), y = jax.lax.scan(read_chunk, (state, segments[0, :, :, :1]), (inputs, segments))
    return join_chunks(y, T), state
