"""Rollouts that are sampled before they are due, so that their rewards are computed while the model trains.

Source: Noukhovitch et al. 2024, arXiv 2410.18252 (completions of a policy some steps old, by their own ratios).
"""

import collections
import concurrent.futures
import dataclasses
import itertools
from typing import Annotated

from generator.language import point, proceed, requires, splice
from generator.language.roles import Batches, Rollouts, Sampled, check_lengths

requires("rollouts")


class RolloutConfig:
    # rollouts whose rewards are computed while the model trains; it samples them this early
    rollouts_ahead: Annotated[int, 0, 1000] = 0


STOP_SECONDS = 10  # that a stopped run waits for rewards, before it is saved without them


@splice("Rollouts.start")
def _(self):
    self.patience: float | None = None  # seconds that a checkpoint waits for rollouts; None: until they are complete
    self.thread = concurrent.futures.ThreadPoolExecutor(1)
    self.pending = collections.deque[concurrent.futures.Future]()  # of rollouts, and sum and count of their metrics


@splice("Rollouts.sample")
def _(self, sampled, sums):
    rounds = -(-self.config.steps // self.config.batches_per_rollout)
    while not self.pending or len(self.pending) <= min(self.config.rollouts_ahead, rounds - self.round - 1):
        with point("Rollouts.submit", self):
            sampled_ahead = self.sample(self.round + len(self.pending), self.policy())
            self.pending.append(self.thread.submit(self.rewarded, *sampled_ahead))
    sampled, sums = self.pending[0].result()
    self.pending.popleft()


@splice("Rollouts.state")
def _(self, states):
    done, _ = concurrent.futures.wait(self.pending, self.patience)
    # those after a reward that fails, or takes too long, are sampled again
    complete = [*itertools.takewhile(lambda future: future in done and not future.exception(), self.pending)]
    point("Rollouts.complete", complete)
    results = [future.result() for future in complete]
    for place, row in enumerate(self.rows):
        states[row]["round"] += len(complete)
        states[row]["pending"] = [
            [[*map(dataclasses.asdict, sampled[place :: len(self.rows)])], sums] for sampled, sums in results
        ]


@splice("Rollouts.resumed")
def _(self, states):
    pending = (sampled for state in states.values() for sampled, _ in state.get("pending", []))
    check_lengths(itertools.chain.from_iterable(pending), self.config.sequence_length)
    for number, (_, sums) in enumerate(states[self.rows[0]].get("pending", [])):
        by_row = [[Sampled(**one) for one in states[row]["pending"][number][0]] for row in self.rows]
        sampled = [*itertools.chain.from_iterable(zip(*by_row, strict=True))]
        self.pending.append(self.thread.submit(lambda *result: result, sampled, sums))
    self.round -= len(states[self.rows[0]].get("pending", []))


def stop_rewarding(data: Batches) -> None:
    """Ends rewards that nothing waits for any more, as when a run is interrupted."""
    if isinstance(data, Rollouts):
        data.thread.shutdown(wait=False, cancel_futures=True)  # those that have begun end by themselves


@splice("train.compiled", after="sources")
def _(stack, data):
    stack.callback(stop_rewarding, data)


@splice("train.evaluate")
def _(data):
    if isinstance(data, Rollouts):
        concurrent.futures.wait(data.pending)  # which share the engine's devices and the processes of rewards
    proceed()


@splice("train.checkpoint_due", after="local_checkpoints")
def _(step, config, is_last):
    proceed()
    is_stopped = is_last and step < config.steps


@splice("train.save", after="local_checkpoints")
def _(data, is_stopped):
    if is_stopped and isinstance(data, Rollouts):
        data.patience = STOP_SECONDS
    proceed()
