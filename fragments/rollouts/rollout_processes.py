"""Rollouts in several processes: each samples and rewards its own rows of a batch, on its own devices."""

import jax
import numpy as np
from jax.experimental import multihost_utils

from generator.language import proceed, requires, splice
from generator.language.roles import Engine, agree, evaluate_rows, failing_together, on_own_devices, own_rows

requires("rollouts", "own_rows")


@splice("Rollouts.rows")
def _(self, config, sharding):
    self.rows = own_rows(sharding, (config.batch_size, config.sequence_length), config.group_size)


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
    values = np.ma.masked_invalid(multihost_utils.process_allgather(np.array([*self.metrics.values()])))
    means = values.mean(axis=0).filled(np.nan)  # over processes that have rewards
    self.metrics = dict(zip(self.metrics, means.tolist(), strict=True))


@splice("Rollouts.complete", optional=True)
def _(complete):
    complete = complete[: -agree(-len(complete))]  # as many in each process, all of which sample the next one


@splice("Rollouts.local_rows")
def _(self, scores, local_scores):
    local_scores = multihost_utils.process_allgather(scores, tiled=True)[self.rows]


@splice("Rollouts.moments", optional=True)
def _(advantages, mean, deviation):
    sums = multihost_utils.process_allgather(np.array([advantages.size, advantages.sum()])).sum(axis=0)
    mean = sums[1] / max(sums[0], 1)
    squares = multihost_utils.process_allgather(np.sum((advantages - mean) ** 2)).sum()
    deviation = np.sqrt(squares / max(sums[0], 1))


@splice("Rollouts.evaluation")
def _(self, summed):
    summed = evaluate_rows(self.evaluate, self.rows)
