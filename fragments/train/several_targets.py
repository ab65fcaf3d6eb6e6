"""Log-likelihoods of several tokens at each place, in one product with the head."""

import jax
import jax.numpy as jnp

from generator.language import proceed, splice


@splice("score_share.targets")
def _(logits, targets, token_ids, target_logits):
    if targets.ndim == logits.ndim:  # [B, T, K]
        places = targets - token_ids[0]
        is_here = (places >= 0) & (places < len(token_ids))
        own_logits = jnp.take_along_axis(logits, jnp.clip(places, 0, len(token_ids) - 1), axis=-1)
        target_logits = jnp.where(is_here, own_logits, 0)
    else:
        proceed()


@splice("score_share.chunks")
def _(targets, padding, chunks, chunk_size, B, T):
    each = jnp.pad(targets.reshape(B * T, -1), (padding, (0, 0)))
    targets = each.reshape(chunks, 1, chunk_size, *targets.shape[2:])


@splice("score_share.joined")
def _(scores, joined, B, T):
    each = jax.tree.map(lambda y: y.reshape(-1, *y.shape[3:])[: B * T], scores)
    joined = jax.tree.map(lambda y: y.reshape(1, B, T, *y.shape[1:]), each)


@splice("score.result")
def _(target_logits, log_normalizer, result):
    summed = target_logits.sum(axis=0)
    each_normalizer = log_normalizer if summed.ndim == log_normalizer.ndim else log_normalizer[..., None]
    result = summed - each_normalizer, log_normalizer
