"""Several environments in a run: sources of prompts, each with a share of the prompts and a reward of its own."""

import concurrent.futures
import os
import re
from typing import Any

import grain
import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import (
    AnyTokenizer,
    Config,
    InputError,
    Monitor,
    Prompt,
    Rewards,
    read_prompts,
    split_mixture,
    sum_and_count,
)

requires("rollouts", "rewards", "data/mixture")


@splice("Prompt.fields")
def _():
    environment: str = ""  # its name


def environment_names(data: str) -> list[str]:
    """Returns a name for each source of a mixture: that of its file or folder, up to a dot.

    Patterns such as *.jsonl, and sources that would have the same name, have that of the folder above.
    """
    paths = [os.path.abspath(os.path.expanduser(path)) for _, path in split_mixture(data)]
    words = [[re.sub(r"\W", "_", part.partition(".")[0]) for part in reversed(path.split("/"))] for path in paths]
    # the root has no name
    candidates = [[*(word for word in each if word.strip("_")), "data", "data"] for each in words]
    names = [first for first, *_ in candidates]
    unique_names = [first if names.count(first) == 1 else second for first, second, *_ in candidates]
    for name, unique_name in zip(names, unique_names, strict=True):
        if unique_names.count(unique_name) > 1:
            raise InputError(f"--data {data}: metrics would call two sources {name}: rename one, or its folder")
    return unique_names


def read_environments(
    config: Config, flag: str, data: str, tokenizer: AnyTokenizer, names: list[str]
) -> list[list[Prompt]]:
    """Returns the prompts of the source of each environment. Raises InputError if there are more or fewer sources."""
    sources = split_mixture(data)
    if len(sources) != len(names):
        raise InputError(f"{flag} {data}: must have a source for each of --data, in this order: {', '.join(names)}")
    environments = [read_prompts(config, flag, path, tokenizer) for _, path in sources]
    for name, prompts in zip(names, environments, strict=True):
        for prompt in prompts:
            prompt.environment = name
    return environments


def read_held_out(config: Config, tokenizer: AnyTokenizer, names: list[str], most: int) -> list[Prompt]:
    """Returns the first prompts of each source of --eval-data: an equal part of `most`, and at least one."""
    if not config.eval_data:
        return []
    environments = read_environments(config, "--eval-data", config.eval_data, tokenizer, names)
    return [prompt for prompts in environments for prompt in prompts[: max(1, most // len(names))]]


class EnvironmentRewards:
    """Rewards completions by the function of their environment, all functions at a time."""

    def __init__(self, config: Config, names: list[str]):
        functions = config.reward.split(",")
        if len(functions) not in (1, len(names)):
            problem = f"must be one function, or one for each source of --data: {', '.join(names)}"
            raise InputError(f"--reward {config.reward}: {problem}")
        made = {function: Rewards(function, config.reward_seconds) for function in functions}
        self.by_name = {name: made[functions[i % len(functions)]] for i, name in enumerate(names)}

    def check(self, prompts: list[Prompt]) -> None:
        """Raises InputError if the function of a prompt cannot take the other fields of its row."""
        for prompt in prompts:
            self.by_name[prompt.environment].check(prompt.source, prompt.fields)

    def __call__(self, completions: list[tuple[Any, Any, dict[str, Any]]], environments: list[str]) -> list[Any]:
        """Returns the rewards of prompts, completions and other fields of their rows."""
        places = {rewards: list[int]() for rewards in self.by_name.values()}
        for place, name in enumerate(environments):
            places[self.by_name[name]].append(place)
        with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
            futures = [pool.submit(rewards, [completions[i] for i in its]) for rewards, its in places.items()]
        by_place = dict[int, Any]()
        for indices, future in zip(places.values(), futures, strict=True):
            by_place |= zip(indices, future.result(), strict=True)
        return [by_place[place] for place in range(len(completions))]


@splice("Rollouts.prompts")
def _(self, config, most):
    self.environment_names = environment_names(config.data)
    sources = read_environments(config, "--data", config.data, self.tokenizer, self.environment_names)
    self.prompts = [prompt for prompts in sources for prompt in prompts]
    orders = [
        grain.MapDataset.source(prompts).seed(config.seed + number).shuffle() for number, prompts in enumerate(sources)
    ]
    self.order = grain.MapDataset.mix(orders, [weight for weight, _ in split_mixture(config.data)])
    self.held_out_prompts = read_held_out(config, self.tokenizer, self.environment_names, most)


@splice("Rollouts.functions")
def _(self, config):
    self.rewards = EnvironmentRewards(config, self.environment_names)
    self.rewards.check(self.prompts + self.held_out_prompts)


@splice("Rollouts.received")
def _(self, each, completions, received):
    received = self.rewards(completions, [prompt.environment for prompt in each])


@splice("Rollouts.record")
def _(prompts, record):
    record["environment"] = prompts[0].environment


@splice("Rollouts.reward_metrics")
def _(self, prompts, rewards, sums):
    for name in self.environment_names:  # also of those without a prompt here: processes have the same metrics
        of_environment = rewards[[prompt.environment == name for prompt in prompts]]
        sums[f"rollout/reward/{name}"] = sum_and_count(of_environment)
        sums[f"rollout/missing_rewards/{name}"] = sum_and_count(np.ma.getmaskarray(of_environment))


def sum_environments(names: list[str], prompts: list[Prompt], rewards: list[float | None]) -> dict[str, list[float]]:
    """Returns the sum and the number of the rewards of each environment."""
    pairs = [(x.environment, reward) for x, reward in zip(prompts, rewards, strict=True) if reward is not None]
    there = {name: [reward for other, reward in pairs if other == name] for name in names}
    return {name: [sum(values), len(values)] for name, values in there.items()}


@splice("Rollouts.evaluated")
def _(self, prompts, rewards, result):
    result["environments"] = sum_environments(self.environment_names, prompts, rewards)


def log_environments(sums: list[dict[str, list[float]]], step: int, monitor: Monitor) -> None:
    """Logs and prints the mean reward of each environment over batches."""
    for name in sums[0]:
        total, count = np.sum([environments[name] for environments in sums], axis=0).tolist()
        if count:
            monitor.log_metrics(step, {f"eval/reward/{name}": total / count})
            print(f"step {step}: reward of {name} on held-out data {total / count:.4f}", flush=True)
        else:
            print(f"step {step}: no completion of {name} in held-out data has a reward", flush=True)


@splice("evaluate_held_out.mean", after="objectives", before="preemption sources")
def _(sums, step, monitor):
    proceed()
    if "environments" in sums[0]:
        log_environments([one["environments"] for one in sums], step, monitor)
