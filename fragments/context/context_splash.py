"""Context parallelism of the Splash kernel: each device attends from its own queries to all keys.

Source: Llama Team 2024, arXiv 2407.21783, section 3.3.2.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SplashAttentionKernel

from generator.language import proceed, splice


def is_alone() -> bool:
    """Returns whether each device has whole sequences."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.empty or mesh.shape["context"] == 1


def balanced_chunks(devices: int) -> list[tuple[int, int]]:
    """Returns the two chunks of a sequence, an even and an odd one, whose queries each device attends from.

    A causal query has more keys the later it comes. So the first chunk goes with the last, the second with the last
    but one, and so on: each device has as many keys to attend to.
    """
    pairs = [(i, 2 * devices - 1 - i) for i in range(devices)]
    return [pair if pair[0] % 2 == 0 else pair[::-1] for pair in pairs]


def exchange_chunks(x: Array, back: bool = False) -> Array:
    """Sends the two neighbouring chunks of each device, x [B, T, ...], to the devices of balanced_chunks, or back.

    Returns x where no devices share sequences.
    """
    if is_alone():
        return x
    parts = []
    chunks = zip(*balanced_chunks(jax.lax.axis_size("context")), strict=True)  # the even ones, and the odd ones
    for part, owned in zip(jnp.split(x, 2, axis=1), chunks, strict=True):
        routes = [(chunk // 2, device) for device, chunk in enumerate(owned)]
        parts.append(jax.lax.ppermute(part, "context", [route[::-1] for route in routes] if back else routes))
    return jnp.concatenate(parts, axis=1)


def gather_sequence(x: Array) -> Array:
    """Gathers x [B, T, ...] of the devices that share sequences."""
    return x if is_alone() else jax.lax.all_gather(x, "context", axis=1, tiled=True)


def own_queries(
    kernel: SplashAttentionKernel, segments: splash.SegmentIds, places: np.ndarray
) -> tuple[SplashAttentionKernel, splash.SegmentIds]:
    """Returns the parts of a Splash kernel and of segment ids for the queries of this device, at places[device] [T].

    The mask in a kernel is cut as its queries are: its arrays are [heads, queries, keys] or [queries].
    """
    if is_alone():
        return kernel, segments
    device = jax.lax.axis_index("context")
    cut = [jnp.stack(jnp.split(x, len(places), axis=min(x.ndim - 1, 1))) for x in jax.tree.leaves(kernel)]
    kernel = jax.tree.unflatten(jax.tree.structure(kernel), [parts[device] for parts in cut])
    return kernel, segments._replace(q=segments.q[:, jnp.array(places)[device]])


@splice("attend_splash.local")
def _(q, k, v, segment_ids, context):
    q, k, v, segment_ids = exchange_chunks(q), *(gather_sequence(x) for x in (k, v, segment_ids))
    proceed()
    context = exchange_chunks(context, back=True)


@splice("attend_splash.size")
def _(q, k, T, size):
    devices = k.shape[1] // q.shape[1]  # that share the sequence
    if devices > 1:
        size = next(n for n in (1024, 768, 512, 384, 256, 128) if q.shape[1] // 2 % n == 0)
        T = k.shape[1]
    else:
        proceed()


@splice("attend_splash.options")
def _(options, devices):
    options["q_seq_shards"] = devices


@splice("attend_splash.mask")
def _(mask, devices):
    places = np.arange(mask.shape[0], dtype=np.int32).reshape(2 * devices, -1)[np.array(balanced_chunks(devices))]
    mask.q_sequence = places.ravel()


@splice("attend_splash.kernel")
def _(kernel, segments, devices, places):
    kernel, segments = own_queries(kernel, segments, places.reshape(devices, -1))
