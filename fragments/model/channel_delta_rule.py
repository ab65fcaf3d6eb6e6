"""The delta rule with a decay for each channel of a key, in chunks of tokens.

Source: Kimi Team 2025, arXiv 2510.26692, section 3; Yang et al. 2023, arXiv 2312.06635, section 4 (blocks in a chunk).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language.roles import CHUNK, join_chunks, split_chunks

BLOCK = 16  # tokens of a chunk, between which each pair has decays of its own


def decayed_products(x: Array, k: Array, decay: Array) -> Array:
    """Multiplies each token of a chunk with those up to it: the sums over channels of x * exp(decay between them) * k.

    Exponents are sums of decays from the first of two tokens to the second, or to the end of a block and on from there:
    each is at most 0. Those of a difference of running sums, taken apart, would overflow.

    Args:
        x, k, decay: [..., C, H]; decay is at most 0.

    Returns:
        [..., C (of x), C (of k)]; what is above the diagonal means nothing.
    """
    x, k, decay = (array.reshape(*array.shape[:-2], -1, BLOCK, array.shape[-1]) for array in (x, k, decay))
    later = jnp.tril(jnp.ones((BLOCK, BLOCK), bool), -1)[:, :, None]
    between = jnp.cumsum(jnp.where(later, decay[..., :, None, :], 0), axis=-3)  # [..., M, S, S, H]: M blocks of S
    within = jnp.sum(x[..., :, None, :] * k[..., None, :, :] * jnp.exp(between), axis=-1)  # [..., M, S, S]
    blocks = jnp.arange(x.shape[-3])
    is_between = (blocks < blocks[:, None, None]) & (blocks > blocks[:, None])  # [M, L, M]: after L, before M
    of_blocks = jnp.where(is_between[..., None], decay.sum(axis=-2)[..., None, None, :, :], 0).sum(axis=-2)
    k = k * jnp.exp(between[..., -1, :, :])  # decayed to the end of their block
    across = jnp.einsum("...MLH,...LUH->...MLUH", jnp.exp(of_blocks), k)
    across = jnp.einsum("...MSH,...MLUH->...MSLU", x * jnp.exp(jnp.cumsum(decay, axis=-2)), across)
    is_same = (blocks[:, None] == blocks)[:, None, :, None]  # [M, 1, L, 1]
    products = jnp.where(is_same, within[..., None, :], across)
    return products.reshape(*products.shape[:-4], CHUNK, CHUNK)


def gated_delta_rule(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array, segment_ids: Array | None
) -> tuple[Array, Array]:
    """Reads from a state of each head that a token and those before it in a segment have written.

    A token multiplies each row of the state [H, V] by its exp(decay), adds beta * (v - k @ state) at its key, and reads
    q @ state. The writes of a chunk depend on each other by a triangular system, which is solved by substitution.

    Args:
        q, k, decay: [B, T, N, H]; decay is at most 0.
        v: [B, T, N, V].
        beta: [B, T, N]; all of these in fp32, as the state sums over many tokens.
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
    # computed again in the backward pass: what pairs of tokens have for each channel is large
    multiply = jax.checkpoint(decayed_products, prevent_cse=False)

    def read_chunk(carry, chunk):
        state, last = carry  # [B, N, H, V], and the segment [B, 1, 1] of the token before
        (q, k, v, decay, beta), segment = chunk
        is_seen = causal & (segment[..., :, None] == segment[..., None, :])  # [B, 1, C, C]
        from_start = jnp.where(segment == last, 1, 0)[..., None] * jnp.exp(jnp.cumsum(decay, axis=-2))  # [B, N, C, H]
        after = jnp.cumsum(decay[..., :0:-1, :], axis=-2)[..., ::-1, :]  # of all tokens after each but the last one
        to_end = jnp.exp(jnp.pad(after, [(0, 0), (0, 0), (0, 1), (0, 0)]))
        to_end = jnp.where(segment == segment[..., -1:], 1, 0)[..., None] * to_end
        beta = beta[..., None]
        scores, system = jnp.where(is_seen, multiply(jnp.stack([q, beta * k]), k, decay), 0)
        known = beta * (v - jnp.einsum("BNCH,BNHV->BNCV", from_start * k, state))
        written = jax.lax.linalg.triangular_solve(system, known, left_side=True, lower=True, unit_diagonal=True)
        context = jnp.einsum("BNCH,BNHV->BNCV", from_start * q, state)
        context += jnp.einsum("BNCD,BNDV->BNCV", scores, written)
        state = from_start[..., -1, :, None] * state + jnp.einsum("BNCH,BNCV->BNHV", to_end * k, written)
        return (state, segment[..., -1:]), context

    (state, _), contexts = jax.lax.scan(read_chunk, (state, segments[0, :, :, :1]), (inputs, segments))
    return join_chunks(contexts, T), state
