"""Next-token cross-entropy in fp32."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point
from generator.language.roles import Config, Decoder


def loss(model: Decoder, batch: dict[str, Array], config: Config) -> tuple[Array, dict[str, Array]]:
    """The loss summed over the targets that count, in nats; its cross-entropy and the number of these targets."""
    with point("loss.hidden", model, batch, config):
        x = model.hidden(batch["tokens"])  # [B, T, D]
    logits = model.embedding.logits(x)  # [B, T, V] fp32
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)  # [B, T]
    # compared rather than indexed, so that it stays local where the vocabulary is sharded
    is_target = batch["targets"][..., None] == jnp.arange(config.vocab_size)
    log_likelihood = jnp.sum(jnp.where(is_target, logits, 0), axis=-1) - log_normalizer
    cross_entropy = -jnp.sum(log_likelihood * batch["weights"])
    with point("loss.total", cross_entropy, log_normalizer, weights=batch["weights"], config=config):
        total = cross_entropy
    sums = {"cross_entropy": cross_entropy, "targets": jnp.sum(batch["weights"])}
    point("loss.terms", total, sums, config=config)
    return total, sums
