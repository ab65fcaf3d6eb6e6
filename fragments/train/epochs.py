"""Training for a number of passes over the data."""

import copy
import dataclasses
import functools
import itertools
from typing import Any

import grain

from generator.language import requires, splice
from generator.language.roles import Batches, Config, InputError, NonNegativeFloat, split_mixture

requires("data/mixture")


class TrainConfig:
    epochs: NonNegativeFloat = 0.0  # passes over the data, which set the steps; a mixture's end with its first source


def piece_sizes(source: grain.MapDataset) -> grain.MapDataset:
    """Returns pieces that have the lengths of those of each document, which is read once."""

    @functools.cache
    def sizes(i: int) -> list[dict[str, Any]]:
        return [{"tokens": range(len(piece["tokens"]))} for piece in source[i]]

    return grain.MapDataset.range(len(source)).map(sizes)


def steps_left(data: Batches, epochs: float) -> int:
    """Counts the batches left in so many epochs, by packing the documents again from their lengths alone."""
    counted = copy.copy(data)
    steps = 0
    weights = [weight for weight, _ in split_mixture(data.config.data)]
    counted.source = grain.MapDataset.mix([piece_sizes(source) for source in data.source.parents], weights)
    counted.set_state(data.get_state(), 0)
    while counted.epoch() < epochs:
        for _ in itertools.islice(counted.sequences, data.config.batch_size):
            pass
        steps += 1
    return steps


def with_steps_of_epochs(config: Config, step: int, data: Batches) -> Config:
    """Returns the config with the step after which --epochs end."""
    if not hasattr(data, "sequences"):
        raise InputError(f"--epochs {config.epochs}: counts documents, and these are prompts: give --steps")
    steps = step + steps_left(data, config.epochs)
    print(f"{config.epochs} epochs end after step {steps}")
    return dataclasses.replace(config, steps=steps)


@splice("train.restored", before="train/ema")
def _(config, step, data, checkpoints):
    if config.epochs:
        config = with_steps_of_epochs(config, step, data)
        checkpoints.config = config
