"""Activations in host memory: the forward pass sends tensors there by name, and the backward pass fetches them.

Source: Rajbhandari et al. 2021, arXiv 2104.07857, section 5.1.2.
"""

from collections.abc import Callable

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.ad_checkpoint import checkpoint_policies as policies

from generator.language import provide, splice
from generator.language.roles import REMAT, InputError


class ModelConfig:
    offload: str = ""  # what is in host memory: comma-separated names of OFFLOAD


# Names in Config.offload: tensors of a block, "input" being that of the block itself; and of the training state.
OFFLOAD = {"input", *REMAT, "optimizer", "parameters"} - {"none", "full", "dots"}


def offload_policy(keep: Callable[..., bool], offload: str) -> Callable:
    """Returns a policy that sends tensors with these names to host memory, and treats all others as `keep` does."""
    names = set(offload.split(",") if offload else ())
    if not OFFLOAD >= names:
        known = ", ".join(sorted(OFFLOAD))
        raise InputError(f"--offload {offload}: give one of {known}, or several with commas and no space")
    names |= {"context"} if "attention" in names else set()  # its outputs go with its inputs, as in REMAT
    send = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=(),
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst="pinned_host",
    )

    def policy(primitive, *avals, **params):
        return (send if params.get("name") in names else keep)(primitive, *avals, **params)

    return policy


def fetch(x: Array) -> Array:
    """Copies an array from host memory, or one that is on its device already, to the memory of its device."""
    return jax.device_put(x, jax.memory.Space.Device)


@provide("Decoder.hidden")
def offload(config) -> str:
    return config.offload


@provide("train")
def offload(config) -> str:
    return config.offload


@splice("Decoder.block")
def _(x):
    x = checkpoint_name(x, "input")


@splice("remat_policy.policy")
def _(policy, offload):
    policy = offload_policy(policy, offload)
