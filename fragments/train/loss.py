"""Next-token cross-entropy in fp32; a device computes it for one chunk of tokens at a time.

Source: Hsu et al. 2024, arXiv 2410.10989, section 3.2 (chunks of tokens).
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from generator.language import point, provide, splice
from generator.language.roles import RULES, Config, Decoder, Embedding, PositiveInt, gather_whole, with_matrices_in


class TrainConfig:
    logits_per_chunk: PositiveInt = 536_870_912  # logits of a device at a time; if it has more, it computes them twice
    gradient_dtype: Literal["float32", "bfloat16"] = "float32"  # dtype of the gradients of matrices and of their sums


@splice("check_config.together")
def _(config, problems):
    if config.gradient_dtype == "bfloat16" and config.dtype == "float32":
        problems.append("--gradient-dtype bfloat16: would round the parameters: give --dtype bfloat16 as well")


def score_share(
    embedding: Embedding, kernel: Array, token_ids: Array, x: Array, targets: Array, config: Config
) -> tuple[Array, Array]:
    """Computes `score` on one device, for its share of the vocabulary: token_ids [V] with kernel [D, V].

    Returns its log-sum-exp of logits and the targets' logits, 0 outside the share: each [1, B, T] in fp32.
    """

    def score_chunk(x, targets):
        logits = embedding.logits(x, kernel)  # [B, T, V]
        point("score_share.logits", logits, config=config)
        with point("score_share.targets", logits, targets, token_ids):
            # compared rather than indexed: a target may be in another device's share
            target_logits = jnp.sum(jnp.where(targets[..., None] == token_ids, logits, 0), axis=-1)
        return jax.nn.logsumexp(logits, axis=-1), target_logits

    (B, T, D), V = x.shape, len(token_ids)
    chunk_size = max(config.logits_per_chunk // V, 1)  # tokens in a chunk
    if B * T <= chunk_size:
        return jax.tree.map(lambda y: y[None], score_chunk(x, targets))
    chunks = -(B * T // -chunk_size)
    chunk_size = -(B * T // -chunks)
    padding = (0, chunks * chunk_size - B * T)
    x = jnp.pad(x.reshape(-1, D), (padding, (0, 0))).reshape(chunks, 1, chunk_size, D)
    with point("score_share.chunks", targets, padding, chunks, chunk_size, B, T, D, V):
        targets = jnp.pad(targets.ravel(), padding).reshape(chunks, 1, chunk_size)
    scores = jax.lax.map(lambda chunk: jax.checkpoint(score_chunk)(*chunk), (x, targets))
    with point("score_share.joined", scores, B, T, D, V):
        joined = jax.tree.map(lambda y: y.ravel()[: B * T].reshape(1, B, T), scores)
    return joined


def score(embedding: Embedding, x: Array, targets: Array, config: Config) -> tuple[Array, Array]:
    """Returns log-likelihoods of targets [B, T] given x [B, T, D], and log normalizers, each [B, T] in fp32."""
    kernel = embedding.kernel()
    token_ids = jnp.arange(config.vocab_size)
    if jax.sharding.get_abstract_mesh().empty:
        log_sums, target_logits = score_share(embedding, kernel, token_ids, x, targets, config)
    else:
        # sums the kernel's gradient over these axes last, when each device has only its own part of it
        batch_axes = tuple(axis for axis in (*RULES["batch"], *RULES["sequence"]) if axis not in RULES["embed"])

        def gather_and_score(kernel, token_ids, x, targets):
            with point("score.gather", kernel, batch_axes, x):
                kernel = gather_whole(jax.lax.pcast(kernel, batch_axes, to="varying"), RULES["embed"], 0, x.dtype)
            x = jax.lax.pcast(x, RULES["vocab"], to="varying")  # each share adds a summand to its gradient
            return score_share(embedding, kernel, token_ids, x, targets, config)

        rows, vocab = PartitionSpec(RULES["batch"], RULES["sequence"]), PartitionSpec(RULES["vocab"])
        with point("score.specs", vocab, rows):
            specs = PartitionSpec(RULES["embed"], RULES["vocab"]), vocab, rows, rows
        score_on_devices = jax.shard_map(gather_and_score, in_specs=specs, out_specs=PartitionSpec(*vocab, *rows))
        log_sums, target_logits = score_on_devices(kernel, token_ids, x, targets)
    log_normalizer = jax.nn.logsumexp(log_sums, axis=0)
    with point("score.result", target_logits, log_normalizer):
        result = target_logits.sum(axis=0) - log_normalizer, log_normalizer
    return result


@provide("score_share")
def vocabulary(token_ids) -> Array:
    return token_ids


def loss(model: Decoder, batch: dict[str, Array], config: Config) -> tuple[Array, dict[str, Array]]:
    """Returns the loss in nats, summed over targets by weight, and sums: `cross_entropy` alone, number of `targets`."""
    model = with_matrices_in(config.gradient_dtype, model)
    with point("loss.hidden", model, batch, config):
        x = model.hidden(batch["tokens"])  # [B, T, D]
    with point("loss.scores", model, batch, x, config):
        log_likelihood, log_normalizer = score(model.embedding, x, batch["targets"], config)
    with point("loss.objective", log_likelihood, batch=batch, config=config):
        cross_entropy = -jnp.sum(log_likelihood * batch["weights"])
    with point("loss.total", cross_entropy, log_normalizer, weights=batch["weights"], config=config):
        total = cross_entropy
    with point("loss.sums", cross_entropy, batch=batch):
        sums = {"cross_entropy": cross_entropy, "targets": jnp.sum(batch["weights"])}
    point("loss.terms", total, sums, model=model, batch=batch, x=x, log_likelihood=log_likelihood, config=config)
    return total, sums


def target_log_likelihoods(model: Decoder, batch: dict[str, Array], config: Config) -> Array:
    """Returns the log-likelihoods of targets [B, T]."""
    x = model.hidden(batch["tokens"])  # [B, T, D]
    log_likelihood, _ = score(model.embedding, x, batch["targets"], config)
    return log_likelihood


@provide("target_log_likelihoods")
def segment_ids(batch) -> Array:
    return batch["segment_ids"]


@provide("target_log_likelihoods")
def positions(batch) -> Array:
    return batch["positions"]
