"""Newer weights for an engine, between steps and without compiling.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4.5 (recomputation of preempted sequences).
"""

import jax

from generator.language import point, splice
from generator.language.roles import Decoder, Engine, InputError


def root_of(salt: bytes, weights: int) -> bytes:
    """Returns the root of a request's pages, so that keys and values of other weights are never shared."""
    return weights.to_bytes(8) + salt


@splice("Engine.pool")
def _(self):
    self.weights = 0  # how often they were replaced


@splice("Engine.root")
def _(self, salt, root):
    root = root_of(salt, self.weights)


def replace_weights(engine: Engine, model: Decoder, recompute: bool) -> None:
    """Replaces the weights of all later steps. Raises InputError if those are of another model.

    With `recompute`, running sequences are preempted: the new weights compute the keys and values of their tokens.
    """
    point("replace_weights.model", engine, model)
    leaves, structure = jax.tree.flatten(model)
    served_leaves, served_structure = jax.tree.flatten(engine.device.model)
    shapes = [[(x.shape, x.dtype) for x in each] for each in (leaves, served_leaves)]
    if structure != served_structure or shapes[0] != shapes[1]:
        raise InputError("it is another model than the one that is served: start a server for it")
    engine.device.model = model
    engine.weights += 1
    if recompute:
        engine.collect()
        for request in reversed(list(engine.running)):
            engine.preempt(request)
    for request in engine.queued:
        request.root = root_of(request.root[8:], engine.weights)
