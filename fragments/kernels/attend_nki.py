"""Flash attention by Neuron's NKI kernels, of rows that hold one document each: the kernels know no others.

Their layouts are those with which AXLearn calls them (neuron_attention.py at 34aed43c); no Trainium has run them here.

Source: Dao et al. 2022, arXiv 2205.14135 (flash attention).
"""

import importlib

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from generator.language import excludes, proceed, splice
from generator.language.roles import RULES, InputError

excludes("sliding_window", "chunked_attention", "attention_soft_cap", "attention_sinks", "latent_attention")
excludes("preferences")  # whose rows hold pairs


def is_neuron() -> bool:
    """Returns whether a program is for Neuron's devices."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return (device.platform if device else jax.default_backend()) == "neuron"


@jax.custom_gradient
def flash(q: Array, k: Array, v: Array) -> Array:
    """Computes causal attention of one device, each [B, T, N, H], by kernels that want time or width last."""
    try:
        kernels = importlib.import_module("neuronxcc.nki.kernels.attention")
        nc = importlib.import_module("neuronxcc.nki.language").nc
    except ImportError as error:
        remedy = "install jax-neuronx[stable], or build without --with nki_attention"
        raise InputError(f"neuronxcc.nki.kernels.attention: {error}: {remedy}") from None
    B, _, N, H = q.shape
    grid = B, N if N % 2 else nc(2) * (N // 2)  # heads, over the two cores of a device
    options = {"use_causal_mask": True, "softmax_scale": H**-0.5, "mixed_precision": True, "dropout_p": 0.0}
    seed = jnp.array([1])  # of the dropout, which there is none of

    def last_time(x):
        return x.transpose(0, 2, 3, 1)  # [B, N, H, T]

    context, log_sums = kernels.flash_fwd[grid](last_time(q), last_time(k), v.swapaxes(1, 2), seed, **options)
    context, log_sums = checkpoint_name((context.swapaxes(1, 2), log_sums), "context")

    def backward(dy):
        inputs = (last_time(x) for x in (q, k, v, context, dy))
        gradients = kernels.flash_attn_bwd[grid](*inputs, log_sums, seed, **options)
        return tuple(x.transpose(0, 3, 1, 2) for x in gradients)

    return context, backward


def attend_nki(q: Array, k: Array, v: Array) -> Array:
    """Computes causal attention of whole rows: q [B, T, N, H]; k, v [B, T, K, H] -> [B, T, N, H]."""
    q, k, v = checkpoint_name((q, k, v), "attention")
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))  # the kernels share no keys
    if jax.sharding.get_abstract_mesh().empty:
        return flash(q, k, v)
    rows = PartitionSpec(RULES["batch"], None, RULES["heads"])
    return jax.shard_map(flash, in_specs=(rows, rows, rows), out_specs=rows, check_vma=False)(q, k, v)


@splice("Attention.attend", before="pages")
def _(q, k, v, context):
    if is_neuron():
        context = attend_nki(q, k, v)  # padding comes last, so that no token sees it
    else:
        proceed()


@splice("Attention.cached")
def _():
    """Leaves cached steps as they are: the kernels are of whole rows."""
    proceed()
