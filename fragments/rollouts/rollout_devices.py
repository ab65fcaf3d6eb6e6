"""Rollouts on devices of their own, which sample while the others train.

Source: Noukhovitch et al. 2024, arXiv 2410.18252, section 3 (generation and training at once, on devices of their own).
"""

import functools
from collections.abc import Callable
from typing import Annotated

import jax
from jax.sharding import Mesh, NamedSharding

from generator.language import proceed, requires, setting, splice
from generator.language.roles import Config, Decoder, InputError, Rollouts, Sampled, make_mesh

requires("rollouts_ahead")


class RolloutConfig:
    rollout_devices: Annotated[int, 0, 1_000_000] = 0  # the last devices, which sample and do not train; 0: all do both


@splice("check_config.together")
def _(config, problems):
    if config.rollout_devices and config.objective != setting("policy_objective"):
        problems.append(f"--rollout-devices: --objective {config.objective} samples nothing: give 0")


def split_devices(config: Config) -> tuple[list[jax.Device], list[jax.Device]]:
    """Returns the devices that train and those that sample."""
    devices = jax.devices()
    count = config.rollout_devices
    if count and jax.process_count() > 1:
        raise InputError("--rollout-devices: for one process: the part rollout_processes samples in several")
    if count >= len(devices):
        raise InputError(f"--rollout-devices {count}: there are {len(devices)} devices, and one at least must train")
    return devices[: len(devices) - count], devices[len(devices) - count :]


@splice("train.mesh")
def _(config, mesh):
    training, _ = split_devices(config)
    mesh = make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor, training)


def copied_policy(policy: Callable[[], Decoder], mesh: Mesh) -> Decoder:
    """Returns a copy of the policy on the devices of a mesh, sharded by its axes of the same names."""
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, x.sharding.spec)), policy())


def roll_out(rollouts: Rollouts, number: int, model: Decoder) -> tuple[list[Sampled], dict[str, float]]:
    """Samples and rewards a round."""
    return rollouts.rewarded(*rollouts.sample(number, model))


@splice("Rollouts.start")
def _(self, config):
    _, sampling = split_devices(config)
    if sampling:  # they share heads and feed-forwards, as the devices of a server do
        self.mesh = make_mesh(1, 1, len(sampling), sampling)


@splice("Rollouts.follow")
def _(self, policy):
    if self.config.rollout_devices:
        self.policy = functools.partial(copied_policy, policy, self.mesh)


@splice("Rollouts.submit")
def _(self):
    if self.config.rollout_devices:
        number = self.round + len(self.pending)
        # the weights are copied now, as the next step changes them
        self.pending.append(self.thread.submit(roll_out, self, number, self.policy()))
    else:
        proceed()
