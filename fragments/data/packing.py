"""Sequence packing: attention stays inside a document, positions restart with it."""

from jax import Array

from generator.marks import provide


@provide("Decoder.hidden", optional=True)
def segment_ids() -> Array:
    return None


@provide("loss")
def segment_ids(batch) -> Array:
    return batch["segment_ids"]


@provide("loss")
def positions(batch) -> Array:
    return batch["positions"]
