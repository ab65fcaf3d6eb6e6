"""What tests of training start from: a random batch and the initial state."""

import functools

import jax
import numpy as np

from generator.language.roles import SMALL, Config, TrainState, new_state


def random_batch(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Draws tokens; row i has about i targets, so that microbatches differ in weight."""
    rng = np.random.default_rng(seed)
    shape = config.batch_size, config.sequence_length
    tokens = rng.integers(0, config.vocab_size, (shape[0], shape[1] + 1), dtype=np.int32)
    share = (np.arange(shape[0]) + 0.5)[:, None] / shape[0]
    return {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
        "segment_ids": np.ones(shape, np.int32),
        "weights": (rng.random(shape) < share).astype(np.float32),
    }


@functools.cache
def initial_arrays() -> list[jax.Array]:
    return jax.tree.leaves(jax.jit(new_state, static_argnums=0)(SMALL))


def state_for(config: Config) -> TrainState:
    """Returns the same initial state for each config, made only once."""
    return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(lambda: new_state(config))), initial_arrays())


def arrays(tree) -> dict[str, np.ndarray]:
    """Copies the leaves, by path."""
    return {jax.tree_util.keystr(path): np.array(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}
