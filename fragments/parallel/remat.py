"""Rematerialisation policies."""

import functools
from collections.abc import Callable

from jax.ad_checkpoint import checkpoint_policies as policies

from generator.language import point, setting, splice
from generator.language.roles import KEEP_DOTS, InputError

KEEP_ATTENTION = (
    policies.save_from_both_policies(
        policies.save_only_these_names("attention", "context"),
        lambda primitive, *_, **__: primitive.name == "dot_product_attention_fwd_wrapper",
    )
    if setting("attention_kernel") == "cudnn"
    else policies.save_only_these_names("attention", "context")
)
REMAT = {  # name in Config.remat -> what the forward pass keeps of a block; the backward pass recomputes the rest
    "none": policies.everything_saveable,
    "full": policies.nothing_saveable,
    "dots": policies.save_from_both_policies(
        KEEP_DOTS if setting("in_8_bits") else policies.dots_with_no_batch_dims_saveable, KEEP_ATTENTION
    ),
    "attention": KEEP_ATTENTION,  # its inputs and outputs: the kernel runs once in each direction
    **{
        x: policies.save_only_these_names(x)
        for x in (
            ("query", "key_value", "out", "gate", "up", "down")
            if setting("attention_kernel") == "cudnn"
            else ("context", "query", "key_value", "out", "gate", "up", "down")
        )
    },
}


def remat_policy(remat: str) -> Callable[..., bool]:
    """Returns the policy of Config.remat: the forward pass keeps what any of its names keeps."""
    if not REMAT.keys() >= set(names := remat.split(",")):
        raise InputError(f"--remat {remat}: give one of {', '.join(REMAT)}, or several with commas and no space")
    policy = functools.reduce(policies.save_from_both_policies, [REMAT[name] for name in names])
    point("remat_policy.policy", policy)
    return policy


@splice("train.settings", before="compile_cache profile")
def _(config):
    remat_policy(config.remat)  # refuses unknown names before anything is written
