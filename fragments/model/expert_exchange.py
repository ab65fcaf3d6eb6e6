"""Experts that stay on their devices, and drop no token: its rows travel to them and back, as many as there are.

A device has room for a multiple of its share of all rows. Where one would get more, experts travel instead, in this
layer and this step: they are gathered as without this fragment.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.2; Gale et al. 2022, arXiv 2211.15841.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires, splice
from generator.language.roles import RULES, Experts, dispatch, gather, gather_and_dispatch, send_rows

requires("dropless")


class Config:
    exchange_factor: float = 2.0  # rows that a device has room for, in multiples of its share; experts travel beyond


@splice("Experts.parameters")
def _(self, config):
    self.exchange_factor = config.exchange_factor


@splice("dropless.spread", optional=True)
def _(specs, summands, spread):
    spread = jax.shard_map(exchange_or_gather, in_specs=specs, out_specs=summands)


def exchange_or_gather(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """`dispatch` where a device has some of the experts: rows travel to experts, or experts to rows."""
    own = experts.gate.kernel.shape[0]
    if own == experts.number:
        return gather_and_dispatch(experts, x, weights, chosen)
    rows = jnp.bincount(chosen.ravel() // own, length=experts.number // own)  # for each device
    others = tuple(axis for axis in RULES["batch"] if axis not in RULES["expert"])
    most = jax.lax.pmax(jax.lax.psum(rows, RULES["expert"]).max(), others)  # of any: all go the same way
    fits = most <= room(experts, chosen.size)
    # each computes again what it needs backwards, so that a step holds that of one of them
    exchanged, gathered = jax.checkpoint(exchange_and_dispatch), jax.checkpoint(gather_and_dispatch)
    return jax.lax.cond(fits, exchanged, gathered, experts, x, weights, chosen)


def exchange_and_dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """`dispatch` to experts that stay: their width alone is gathered."""
    return dispatch(gather(experts, ("expert_embed",), x.dtype), x, weights, chosen)


def room(experts: Experts, rows: int) -> int:
    """The rows that a device has room for, where each has so many itself: at most those of all."""
    devices = experts.number // experts.gate.kernel.shape[0]
    return math.ceil(min(experts.exchange_factor, devices) * rows)


@splice("dispatch.experts")
def _(experts, rows, y, sizes):
    own = experts.gate.kernel.shape[0]
    if own == experts.number:
        y = experts(rows)
    else:
        counts = jax.lax.all_gather(sizes, RULES["expert"]).reshape(-1, experts.number // own, own)
        y = exchange(experts, rows, counts)


def starts(sizes: Array, axis: int) -> Array:
    """Where groups of these sizes start, which stand one after the other along an axis."""
    return jnp.cumsum(sizes, axis) - sizes


def exchange(experts: Experts, rows: Array, counts: Array) -> Array:
    """experts(rows), by the devices that have the experts. counts: rows of each sender for each receiver's experts.

    Rows are in the order of their experts with the sender, and again with the receiver.
    """
    me = jax.lax.axis_index(RULES["expert"])
    sent = starts(counts.sum(axis=2), axis=1)[..., None] + starts(counts, axis=2)  # places with the sender
    received = starts(counts.sum(axis=0), axis=1) + starts(counts, axis=0)  # and with the receiver
    away, home = (sent[me], counts[me], received[me]), (received[:, me], counts[:, me], sent[:, me])
    x = send_rows(rows, room(experts, len(rows)), away, home)  # [room, D]
    y = experts(x)
    return send_rows(y, len(rows), home, away)


@provide("exchange")
def sizes(counts) -> Array:
    return counts[:, jax.lax.axis_index(RULES["expert"])].sum(axis=0)  # rows for each of the experts at hand
