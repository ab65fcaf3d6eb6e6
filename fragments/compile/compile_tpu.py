"""Slices of TPUs that are not here, for compilation."""

import dataclasses
import os
import re
import sys
from typing import Any

from generator.language import proceed, requires, splice
from generator.language.roles import CHIPS, HARDWARE, Config, InputError, does_not_fit

requires("compile", "flags_tpu")


def topology_mesh(config: Config, topology: str, slices: int) -> Any:
    """Returns the mesh of slices such as v5p:8x8x4 or v5e:16x16: of descriptions that only a compiler can use."""
    from jax.experimental import topologies  # after help and refusals, as they import JAX

    from generator.language.roles import make_mesh

    # keeps libtpu from looking for TPUs of this machine, and from locking out a second process
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5p-8", "TPU_WORKER_HOSTNAMES": "localhost"}
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    chip, _, shape = topology.partition(":")
    sides = [int(side) for side in shape.split("x") if side.isdecimal()]
    flat = chip in ("v5e", "v6e")
    if chip not in CHIPS or len(sides) != (2 if flat else 3) or slices < 1 or (flat and max(sides) > 16):
        choices = f"{', '.join(CHIPS)} with its lengths, such as v5p:8x8x4 or v5e:16x16, and --slices of at least 1"
        raise InputError(f"--topology {topology} --slices {slices}: there is no such slice: give {choices}")
    try:
        # which sides wrap around: in 3D all, if made of whole 4 x 4 x 4 cubes; in 2D those of a whole pod
        wrap = [side == 16 for side in sides] + [False] if flat else [all(s % 4 == 0 for s in sides)] * 3
        options = {"wrap": wrap, "num_slices": slices} | ({"chip_config_name": "megacore"} if chip == "v4" else {})
        devices = list(topologies.get_topology_desc(topology, "tpu", **options).devices)
    except Exception as error:  # from libtpu, or because it is not installed
        raise InputError(f"--topology {topology}: give another, or pip install 'jax[tpu]': {error}") from None
    return make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor, devices)


@splice("CompileCommand.devices")
def _():
    topology: str = "v5p:8x8x4"  # chip and size of a slice
    slices: int = 1  # of that topology


@splice("compile.hardware")
def _(first_pass, default):
    default = dataclasses.replace(default, topology=HARDWARE[first_pass.hardware].topology)


@splice("compile.mesh")
def _(command, config, chip, mesh):
    chip = command.topology.partition(":")[0]
    mesh = topology_mesh(config, command.topology, command.slices)


@splice("compile.step", after="host_state")
def _(chip, jax):
    try:
        proceed()
    except jax.errors.JaxRuntimeError as error:
        if not (words := re.search(r"(?i)Ran out of memory .*hbm.*[^.]|Alloc.* exceed memory \S+", str(error))):
            raise
        print(does_not_fit(chip, words[0]), file=sys.stderr)
        raise SystemExit(3) from None
