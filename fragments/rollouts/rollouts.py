"""Rollouts: batches of completions that the model being trained samples, each with an advantage.

Source: Shao et al. 2024, arXiv 2402.03300, section 4.1.
"""

import dataclasses
import json
import math
import zlib
from collections.abc import Callable
from typing import Any

import grain
import jax
import numpy as np
from etils import epath
from jax import Array
from jax.sharding import NamedSharding

from generator.language import point, proceed, requires, setting, splice
from generator.language.roles import (
    Batches,
    CompletionRecords,
    Config,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    PositiveFloat,
    PositiveInt,
    Prompt,
    Request,
    Rewards,
    Sampled,
    SamplingParams,
    check_lengths,
    credit_tokens,
    fingerprint,
    identity,
    load_ends,
    load_tokenizer,
    most_tokens,
    read_prompts,
)

requires(
    "rewards", "train/policy_loss", "rollouts/prompts", "rollouts/sampled", "rollouts/completions", "engine/engine"
)


class RolloutConfig:
    """What the model samples, and what rewards it."""

    reward: str = ""  # MODULE:FUNCTION that returns the reward of (prompt, completion, **other fields of the row)
    reward_seconds: PositiveFloat = 10.0  # time limit of a reward
    completion_tokens: PositiveInt = 256  # tokens sampled at most
    batches_per_rollout: PositiveInt = 1  # steps before the model samples again
    rollout_sequences: PositiveInt = 64  # sampled at a time


@splice("Batches.state")
def _(state, step):
    if "sequences" not in state:
        remedy = "give it again, or export the weights, and import them into a new --checkpoint-dir"
        raise InputError(f"step {step} is of completions that a model sampled, or of an earlier release: {remedy}")


@splice("evaluate_held_out.mean", before="objectives")
def _(sums):
    if "cross_entropy" in sums[0]:  # rewards are no loss
        proceed()


@splice("check_config.together")
def _(config, problems):
    if (
        config.objective == setting("policy_objective")
        and config.batch_size * config.batches_per_rollout % config.group_size
    ):
        problems.append("--group-size: must divide batch_size x batches_per_rollout, the completions of a rollout")
    if config.reward and config.objective != setting("policy_objective"):
        remedy = f"give --objective {setting('policy_objective')}, or leave it out"
        problems.append(f"--reward {config.reward}: --objective {config.objective} has no rewards: {remedy}")


def sum_and_count(values: Any) -> tuple[float, int]:
    """Returns the sum and the number of values, without those that are masked."""
    values = np.ma.asarray(values)
    return float(values.filled(0).sum()), int(values.count())


class Rollouts(Batches):
    """Yields batches for a policy gradient: each row is a prompt and a completion that `policy` sampled."""

    def __init__(self, config: Config, sharding: NamedSharding):
        if not config.data:
            raise InputError(f"--objective {config.objective}: needs --data with prompts, in JSONL")
        self.config, self.sharding = config, sharding
        self.mesh = sharding.mesh  # of the devices that sample
        with point("Rollouts.rows", self, config, sharding):
            if jax.process_count() > 1:
                raise InputError(f"--objective {config.objective}: samples in one process: start it in one")
            self.rows = list(range(config.batch_size))
        self.tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
        self.ends = load_ends(self.tokenizer, config.tokenizer)
        most = config.eval_batches * config.batch_size
        with point("Rollouts.prompts", self, config, most):
            self.prompts = read_prompts(config, "--data", config.data, self.tokenizer)
            self.order = grain.MapDataset.source(self.prompts).seed(config.seed).shuffle()
            held_out = read_prompts(config, "--eval-data", config.eval_data, self.tokenizer) if config.eval_data else []
            self.held_out_prompts = held_out[:most]
        self.documents = zlib.crc32(json.dumps([fingerprint(config.data), identity(self.tokenizer)]).encode())
        with point("Rollouts.rewards", self, config):
            if not config.reward:
                raise InputError(f"--objective {config.objective}: needs --reward MODULE:FUNCTION, also to go on")
            point("Rollouts.group", config)
            with point("Rollouts.functions", self, config):
                self.rewards = Rewards(config.reward, config.reward_seconds)
                for prompt in self.prompts + self.held_out_prompts:
                    self.rewards.check(prompt.source, prompt.fields)
        self.round = 0  # of the next rollout
        self.first_step = 1  # of round 0, at this number of batches in each
        self.rewarded_step = 0  # the last one whose rewards are known when a run resumes
        self.waiting = list[list[Sampled]]()  # the batches left of this round
        self.metrics: dict[str, float] = {}  # of a rollout, for its first batch; else none
        point("Rollouts.start", self, config)

    def follow(self, policy: Callable[[], Decoder], open_reference: Callable, folder: epath.Path | None) -> None:
        """Takes functions that return the current model and open that of step 0, and a folder for completions."""
        self.policy = policy
        self.records = CompletionRecords(folder, self.rewarded_step) if folder else None
        point("Rollouts.follow", self, policy)
        self.reference = open_reference(policy) if self.config.kl_coefficient else None

    def held_out(self) -> list[dict[str, np.ndarray]]:
        """Returns batches of held-out prompts: their places, int32 [rows, 1], and -1 where there are no more."""
        count = len(self.held_out_prompts)
        size = self.config.batch_size
        places = np.pad(np.arange(count, dtype=np.int32), (0, -count % size), constant_values=-1)
        return [{"prompt": rows[self.rows]} for rows in places.reshape(-1, size, 1)]

    def evaluation(self) -> Callable:
        with point("Rollouts.evaluation", self):
            summed = self.evaluate
        return summed

    def evaluate(self, _: Decoder, batch: dict[str, Array]) -> dict[str, Any]:
        """Returns sums over held-out prompts, each with a completion at temperature 1, whose seed is its place."""
        places = [place for place in np.asarray(batch["prompt"])[:, 0].tolist() if place >= 0]
        prompts = [self.held_out_prompts[place] for place in places]
        requests = self.generate(prompts, places, self.policy())
        with point("Rollouts.evaluate", self, prompts, requests):
            rewards = [reward for *_, reward in self.rewarded_texts(prompts, requests)]
            pairs = zip(requests, rewards, strict=True)
            rewarded = [(len(request.tokens), reward) for request, reward in pairs if reward is not None]
            sums = {"reward": sum(reward for _, reward in rewarded), "tokens": sum(length for length, _ in rewarded)}
            result = {"targets": len(rewarded), "objective": sums}
            point("Rollouts.evaluated", self, prompts, rewards, result)
        return result

    def __next__(self) -> dict[str, np.ndarray]:
        self.metrics = {}
        if not self.waiting:
            with point("Rollouts.sample", self):
                sampled, sums = self.rewarded(*self.sample(self.round, self.policy()))
            point("Rollouts.sums", sums)
            self.metrics = {name: total / count if count else math.nan for name, (total, count) in sums.items()}
            point("Rollouts.begun", self, sampled)
            self.round += 1
            size = len(self.rows)
            self.waiting = [sampled[start : start + size] for start in range(0, len(sampled), size)]
        batch = self.batch(self.waiting.pop(0))
        if self.reference:
            batch["reference"] = self.local_rows(self.reference(self.to_devices(batch)))
        return batch

    def local_rows(self, scores: Array) -> np.ndarray:
        """Returns those rows of an array of the mesh, [batch_size, T], that are the ones of this process."""
        with point("Rollouts.local_rows", self, scores):
            local_scores = np.asarray(scores)
        return local_scores

    def prompts_per_round(self) -> int:
        return self.config.batch_size * self.config.batches_per_rollout // self.config.group_size

    def choose(self, number: int, count: int) -> list[Prompt]:
        """Returns the prompts of a round, by its number; each epoch has an order of its own."""
        return [self.order[place] for place in range(number * count, (number + 1) * count)]

    def generate(self, prompts: list[Prompt], seeds: list[int], model: Decoder) -> list[Request]:
        """Samples a completion for each seed at temperature 1: the same number for each prompt, in their order."""
        config = self.config
        count = len(seeds)
        size = len(seeds) // max(1, len(prompts))
        rows = min(config.batch_size * config.batches_per_rollout, config.rollout_sequences)
        sizes = EngineSettings(max_sequences=rows, max_length=most_tokens(config), queue=max(1, count))
        # made anew, so that steps have the memory of its KV cache
        with point("Rollouts.engine", self, config, model, sizes):
            engine = Engine(config, model, self.ends, sizes, self.mesh)
        point("Rollouts.started", engine)
        requests: dict[int, Request] = {}
        for first in range(size):  # which computes the prompts that the others share
            for place in range(first, count, size):
                sampling = SamplingParams(max_tokens=config.completion_tokens, temperature=1.0, seed=seeds[place])
                requests[place] = engine.add(prompts[place // size].tokens, sampling)
        while engine.queued or engine.running:
            engine.step()
        point("Rollouts.generated", self, prompts, engine, requests)
        return [requests[place] for place in range(count)]

    def sample(self, number: int, model: Decoder) -> tuple[int, list[Prompt], list[Request]]:
        """Returns the number of a round, its prompts, and completions of each."""
        config = self.config
        count = self.config.batch_size * self.config.batches_per_rollout
        prompts = self.choose(number, self.prompts_per_round())
        seeds = np.random.default_rng([config.seed, number]).integers(2**32, size=count).tolist()
        point("Rollouts.own", self, prompts, seeds)
        return number, prompts, self.generate(prompts, seeds, model)

    def rewarded(
        self, number: int, prompts: list[Prompt], requests: list[Request]
    ) -> tuple[list[Sampled], dict[str, tuple[float, int]]]:
        """Returns the completions of a round with their advantages, and sum and count of each of its metrics."""
        sums = {
            "rollout/tokens": sum_and_count([len(request.tokens) for request in requests]),
            "rollout/cut_off": sum_and_count([request.finish == "length" for request in requests]),
        }
        point("Rollouts.metrics", self, requests, sums)
        with point("Rollouts.advantages", self, number, prompts, requests, sums):
            rewards = self.reward(number, prompts, requests, sums)
            advantages = credit_tokens(rewards, requests, sums, self.config)
        pairs = zip(requests, advantages, strict=True)
        with point("Rollouts.sampled", pairs, sums):
            result = [Sampled(x.prompt, x.tokens, x.logprobs, advantage) for x, advantage in pairs], sums
        return result

    def rewarded_texts(self, prompts: list[Prompt], requests: list[Request]) -> list[tuple[Prompt, Any, float | None]]:
        """Returns the prompt, the text and the reward of each completion."""
        with point("Rollouts.texts", self, requests):
            texts = [self.tokenizer.decode(x.tokens[:-1] if x.finish == "stop" else x.tokens) for x in requests]
        each = [prompt for prompt in prompts for _ in range(len(texts) // len(prompts))]
        completions = [(prompt.prompt, text, prompt.fields) for prompt, text in zip(each, texts, strict=True)]
        with point("Rollouts.received", self, each, completions):
            received = self.rewards(completions)
        return list(zip(each, texts, received, strict=True))

    def reward(
        self, number: int, prompts: list[Prompt], requests: list[Request], sums: dict[str, tuple[float, int]]
    ) -> np.ma.MaskedArray:
        """Returns the rewards of completions [groups, group_size], without those that are None; writes a group."""
        size = self.config.group_size
        completions = self.rewarded_texts(prompts, requests)
        received = np.array([reward for *_, reward in completions], float)
        rewards = np.ma.masked_invalid(received.reshape(-1, size))
        sums["rollout/reward"] = sum_and_count(rewards)
        sums["rollout/missing_rewards"] = sum_and_count(np.ma.getmaskarray(rewards))
        point("Rollouts.reward_metrics", self, prompts, rewards, sums)
        if self.records:
            step = self.first_step + number * self.config.batches_per_rollout
            record = {"step": step, "round": number, "prompt": prompts[0].prompt}
            point("Rollouts.record", prompts, record)
            self.records.write([record | {"completion": text, "reward": x} for _, text, x in completions[:size]])
        return rewards

    def batch(self, sampled: list[Sampled]) -> dict[str, np.ndarray]:
        """Returns a batch [rows, T]; weights, advantages and sampled_logprobs are 0 where no target was sampled."""
        shape = len(sampled), self.config.sequence_length
        batch = {name: np.zeros(shape, np.int32) for name in ("tokens", "targets", "positions", "segment_ids")}
        batch |= {name: np.zeros(shape, np.float32) for name in ("weights", "advantages", "sampled_logprobs")}
        point("Rollouts.batch", self, batch, shape)
        for row, sample in enumerate(sampled):
            sequence = [*sample.prompt, *sample.tokens]
            first = len(sample.prompt) - 1
            end = len(sequence) - 1
            batch["tokens"][row, :end], batch["targets"][row, :end] = sequence[:-1], sequence[1:]
            batch["positions"][row, :end] = range(end)
            batch["segment_ids"][row, :end] = 1
            if not sample.advantages:
                continue  # it gives no gradient
            batch["weights"][row, first:end] = 1 if self.config.loss_per == "token" else 1 / len(sample.tokens)
            batch["advantages"][row, first:end] = sample.advantages
            batch["sampled_logprobs"][row, first:end] = sample.logprobs
            point("Rollouts.row", self, batch, row, first, end, sample)
        return batch

    def epoch(self) -> float:
        """Returns how many epochs of the prompts are sampled; of several sources, epochs of the first to end."""
        return self.round * self.prompts_per_round() / len(self.order)

    def get_state(self) -> dict[int, Any]:
        """Returns the state of each row: the round, and what waits of it."""
        known = {"documents": self.documents, "round": self.round, "prompts_per_round": self.prompts_per_round()}
        states = {
            row: known | {"waiting": [dataclasses.asdict(batch[i]) for batch in self.waiting]}
            for i, row in enumerate(self.rows)
        }
        point("Rollouts.state", self, states)
        return states

    def set_state(self, states: dict[str, Any], step: int) -> None:
        """Resumes from the states of all rows after a step. Raises InputError if their data is not allowed."""
        states = {int(row): state for row, state in states.items() if str(row).isdecimal()}
        if len(states) != self.config.batch_size or "round" not in states[0]:
            remedy = "give these again, or export the weights, and import them into a new --checkpoint-dir"
            raise InputError(f"step {step} is of another --objective or --batch-size: {remedy}")
        if (count := states[0].get("prompts_per_round")) != self.prompts_per_round():  # by which prompts are chosen
            remedy = "give --group-size and --batches-per-rollout as they were, or export the weights, and import them"
            raise InputError(f"step {step} is of rollouts of {count} prompts, not {self.prompts_per_round()}: {remedy}")
        if states[0]["documents"] != self.documents and not self.config.allow_other_data:
            raise InputError(
                f"--data {self.config.data}: not the prompts that this run had up to {step}: "
                "give the same files and tokenizer, or --allow-other-data"
            )
        check_lengths((one for state in states.values() for one in state["waiting"]), self.config.sequence_length)
        self.round = states[0]["round"]
        rows = [[Sampled(**fields) for fields in states[row]["waiting"]] for row in self.rows]
        self.waiting = [list(batch) for batch in zip(*rows, strict=True)]
        point("Rollouts.resumed", self, states)
        size = self.config.batches_per_rollout  # may be another one than before, with another --group-size
        self.first_step = step + len(self.waiting) + 1 - self.round * size
        self.rewarded_step = self.first_step - 1 + states[0]["round"] * size
