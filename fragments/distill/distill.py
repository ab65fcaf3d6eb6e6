"""Distillation from the stored likeliest tokens of a teacher: the forward KL divergence, with all others as one token.

The likeliest tokens alone, renormalised, would draw the student to a sharper distribution than the teacher's.

Source: Hinton et al. 2015, arXiv 1503.02531, section 2 (temperature); Anshumann et al. 2025, arXiv 2503.16870 (the bias
of likeliest tokens alone).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import proceed, requires, splice
from generator.language.roles import PositiveFloat, score, taught_top_k

requires("taught", "objectives", "several_targets", "deep_fields")


class TrainConfig:
    distill_temperature: PositiveFloat = 1.0  # divides logits of the teacher and the model for --objective distill


def log_rest(logprobs: Array) -> Array:
    """Returns the log of the probability of all other tokens, at least that of 1e-6, from logprobs [B, T, K]."""
    known = jnp.minimum(jax.nn.logsumexp(logprobs, axis=-1), -1e-6)
    return jnp.log(-jnp.expm1(known))


def distill_loss(
    log_likelihood: Array, batch: dict[str, Array], config: TrainConfig
) -> tuple[Array, Array, dict[str, Array]]:
    """Returns the KL divergence summed over tokens, times the temperature squared.

    log_likelihood: of the teacher's likeliest tokens, [B, T, K].
    """
    teacher = batch["top_logprobs"]
    weights = batch["weights"]
    rest = log_rest(teacher)
    own_rest = log_rest(log_likelihood)
    divergence = jnp.sum(jnp.exp(teacher) * (teacher - log_likelihood), axis=-1)  # [B, T]
    divergence += jnp.exp(rest) * (rest - own_rest)
    return config.distill_temperature**2 * jnp.sum(divergence * weights), jnp.sum(weights), {}


@splice("objectives")
def _(losses):
    losses["distill"] = distill_loss


@splice("score_share.logits")
def _(logits, config):
    if config.objective == "distill":
        logits = logits / config.distill_temperature


@splice("loss.scores")
def _(model, batch, x, config, log_likelihood, log_normalizer):
    if config.objective == "distill":
        log_likelihood, log_normalizer = score(model.embedding, x, batch["top_tokens"], config)
    else:
        proceed()


@splice("weighted_pieces.values")
def _(values, tokens, config):
    if config.objective == "distill":
        values |= {"top_tokens": tokens["top"][1:], "top_logprobs": tokens["logprob"][1:]}


@splice("abstract_batch.arrays")
def _(arrays, layout, shape, config):
    if config.objective == "distill":
        top = *shape, taught_top_k(config)
        arrays["top_tokens"] = jax.ShapeDtypeStruct(top, "int32", sharding=layout)
        arrays["top_logprobs"] = jax.ShapeDtypeStruct(top, "float32", sharding=layout)
