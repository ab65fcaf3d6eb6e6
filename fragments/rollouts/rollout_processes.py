"""Rollouts in several processes: each samples and rewards its own rows of a batch, on its own devices."""

import math

import jax
import numpy as np
from jax.experimental import multihost_utils

from generator.language import proceed, requires, splice
from generator.language.roles import (
    Engine,
    agree,
    evaluate_rows,
    failing_together,
    gather_numbers,
    on_own_devices,
    own_rows,
)

requires("rollouts", "own_rows")


@splice("Rollouts.rows")
def _(self, config, sharding):
    shape = config.batch_size, config.sequence_length
    self.rows = own_rows(sharding, shape, config.group_size, config.batches_per_rollout)


@splice("Rollouts.own")
def _(self, prompts, seeds):
    size, group = self.config.batch_size, self.config.group_size
    places = [start + row for start in range(0, len(seeds), size) for row in self.rows]
    prompts = [prompts[place // group] for place in places[::group]]
    seeds = [seeds[place] for place in places]


@splice("Rollouts.engine")
def _(self, config, model, sizes, engine):
    model, mesh = on_own_devices(model, self.mesh)
    with jax.set_mesh(mesh):
        engine = Engine(config, model, self.ends, sizes, mesh)


@splice("Rollouts.sample")
def _(self):
    with failing_together():
        proceed()


@splice("Rollouts.sums")
def _(sums):
    all_sums = gather_numbers([*sums.values()]).sum(axis=0).reshape(-1, 2)
    sums = dict(zip(sums, all_sums.tolist(), strict=True))


@splice("Rollouts.complete", optional=True)
def _(complete):
    complete = complete[: -agree(-len(complete))]  # as many in each process, all of which sample the next one


@splice("Rollouts.local_rows")
def _(self, scores, local_scores):
    local_scores = multihost_utils.process_allgather(scores, tiled=True)[self.rows]


@splice("Rollouts.moments", optional=True)
def _(advantages, mean, deviation):
    count, total = gather_numbers([advantages.size, advantages.sum()]).sum(axis=0).tolist()
    mean = total / max(count, 1)
    deviation = math.sqrt(gather_numbers([np.sum((advantages - mean) ** 2)]).sum() / max(count, 1))


@splice("Rollouts.evaluation")
def _(self, summed):
    summed = evaluate_rows(self.evaluate, self.rows)
