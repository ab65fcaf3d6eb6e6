"""The gated delta rule, in chunks of tokens.

Source: Yang et al. 2024, arXiv 2412.06464, section 3; Yang et al. 2024, arXiv 2406.06484, section 3 (chunks).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import CHUNK, join_chunks, split_chunks, sums_between


def gated_delta_rule(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array, segment_ids: Array | None
) -> tuple[Array, Array]:
    """Reads from a state of each head that a token and those before it in a segment have written.

    A token multiplies the state [H, V] by exp(decay), adds beta * (v - k @ state) at its key, and reads q @ state.
    The writes of a chunk depend on each other by a triangular system, which is solved by substitution: powers of its
    matrix would overflow where keys are alike.

    Args:
        q, k: [B, T, N, H].
        v: [B, T, N, V]; all of these in fp32, as the state sums over many tokens.
        decay, beta: [B, T, N]; decay is at most 0.
        state: [B, N, H, V], before the first token.
        segment_ids: [B, T]; the state is 0 before the first token of a later segment.

    Returns:
        What the tokens read, [B, T, N, V], and the state after the last one.
    """
    B, T = q.shape[:2]
    if segment_ids is None:
        segment_ids = jnp.zeros((B, T), jnp.int32)
    inputs = [split_chunks(x) for x in (q, k, v, decay, beta)]
    segment_ids = jnp.pad(segment_ids, [(0, 0), (0, -T % CHUNK)], "edge")  # padding is no segment of its own
    segments = split_chunks(segment_ids[:, :, None])  # [T / C, B, 1, C]
    causal = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    def read_chunk(carry, chunk):
        state, last = carry  # [B, N, H, V], and the segment [B, 1, 1] of the token before
        (q, k, v, decay, beta), segment = chunk
        between = sums_between(decay)  # [B, N, C, C]
        since_start = jnp.exp(jnp.cumsum(decay, axis=-1))  # [B, N, C]
        is_seen = causal & (segment[..., :, None] == segment[..., None, :])  # [B, 1, C, C]
        kept = jnp.exp(jnp.where(is_seen, between, -jnp.inf))  # of what a token wrote
        from_start = jnp.where(segment == last, since_start, 0)[..., None]  # of the state before, [B, N, C, 1]
        to_end = jnp.where(segment == segment[..., -1:], jnp.exp(between[..., -1, :]), 0)[..., None]
        beta = beta[..., None]
        system = beta * jnp.einsum("BNCH,BNDH->BNCD", k, k) * kept  # only what is below the diagonal is read
        known = beta * (v - from_start * jnp.einsum("BNCH,BNHV->BNCV", k, state))
        written = jax.lax.linalg.triangular_solve(system, known, left_side=True, lower=True, unit_diagonal=True)
        scores = jnp.einsum("BNCH,BNDH->BNCD", q, k) * kept
        context = from_start * jnp.einsum("BNCH,BNHV->BNCV", q, state) + jnp.einsum("BNCD,BNDV->BNCV", scores, written)
        state = from_start[..., -1:, :] * state + jnp.einsum("BNCH,BNCV->BNHV", to_end * k, written)
        return (state, segment[..., -1:]), context

    (state, _), contexts = jax.lax.scan(read_chunk, (state, segments[0, :, :, :1]), (inputs, segments))
    return join_chunks(contexts, T), state
