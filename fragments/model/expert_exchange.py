"""Dropless expert parallelism: tokens are sent to the devices of their experts and back.

A device has room for a multiple of its even share of rows. If one would get more, the experts are gathered
instead, in this layer and step.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.2; Gale et al. 2022, arXiv 2211.15841.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires, splice
from generator.language.roles import RULES, Experts, PositiveFloat, dispatch, gather, gather_and_dispatch, send_rows

requires("dropless")


class ModelConfig:
    exchange_factor: PositiveFloat = 2.0  # room of a device, as a multiple of its even share of rows; beyond: gathers


@splice("Experts.parameters")
def _(self, config):
    self.exchange_factor = config.exchange_factor


@splice("dropless.spread", optional=True)
def _(specs, summands, spread):
    spread = jax.shard_map(exchange_or_gather, in_specs=specs, out_specs=summands)


def exchange_or_gather(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Dispatches where each device has some of the experts: sends rows to experts, or gathers experts."""
    count = experts.gate.kernel.shape[0]
    if count == experts.number:
        return gather_and_dispatch(experts, x, weights, chosen)
    rows = jnp.bincount(chosen.ravel() // count, length=experts.number // count)  # for each device
    others = tuple(axis for axis in (*RULES["batch"], *RULES["sequence"]) if axis not in RULES["expert"])
    most = jax.lax.pmax(jax.lax.psum(rows, RULES["expert"]).max(), others)  # over devices: one branch for all
    fits = most <= room(experts, chosen.size)
    # rematerialised, so that a step holds the residuals of one branch at a time
    exchanged, gathered = jax.checkpoint(exchange_and_dispatch), jax.checkpoint(gather_and_dispatch)
    return jax.lax.cond(fits, exchanged, gathered, experts, x, weights, chosen)


def exchange_and_dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Dispatches to experts on their devices; gathers only their width."""
    return dispatch(gather(experts, ("expert_embed",), x.dtype), x, weights, chosen)


def room(experts: Experts, rows: int) -> int:
    """Returns how many rows a device has room for, if each device has `rows` of its own."""
    devices = experts.number // experts.gate.kernel.shape[0]
    return math.ceil(min(experts.exchange_factor, devices) * rows)


@splice("dispatch.experts")
def _(experts, rows, y, sizes):
    count = experts.gate.kernel.shape[0]
    if count == experts.number:
        y = experts(rows)
    else:
        counts = jax.lax.all_gather(sizes, RULES["expert"]).reshape(-1, experts.number // count, count)
        y = exchange(experts, rows, counts)


def starts(sizes: Array, axis: int) -> Array:
    """Returns where consecutive groups of these sizes start along an axis."""
    return jnp.cumsum(sizes, axis) - sizes


def exchange(experts: Experts, rows: Array, counts: Array) -> Array:
    """Computes experts(rows) on the devices that have the experts; rows are sorted by expert at both ends.

    counts: rows by [sender, receiver, expert of the receiver].
    """
    me = jax.lax.axis_index(RULES["expert"])
    sent = starts(counts.sum(axis=2), axis=1)[..., None] + starts(counts, axis=2)  # places at the sender
    received = starts(counts.sum(axis=0), axis=1) + starts(counts, axis=0)  # and at the receiver
    away, home = (sent[me], counts[me], received[me]), (received[:, me], counts[:, me], sent[:, me])
    x = send_rows(rows, room(experts, len(rows)), away, home)  # [room, D]
    y = experts(x)
    return send_rows(y, len(rows), home, away)


@provide("exchange")
def sizes(counts) -> Array:
    return counts[:, jax.lax.axis_index(RULES["expert"])].sum(axis=0)  # rows for each of this device's experts
