"""Compilation for TPUs that are not here."""

import dataclasses
import functools
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

import jax
import tyro
from jax.experimental import topologies

from generator.language import point, requires, setting
from generator.language.roles import (
    PRESETS,
    Config,
    InputError,
    abstract,
    abstract_batch,
    check_config,
    compile_step,
    ending_with_messages,
    flops_per_token,
    make_mesh,
    new_state,
    set_flags,
)

requires("flags_tpu")

MEMORY = setting("memory_gib")  # of one device


def end_as_too_large(chip: str, needed: str) -> NoReturn:
    remedy = "give fewer sequences to a device, a --remat that keeps less, a larger --mesh-fsdp or more chips"
    print(f"error: DOES NOT FIT {chip} with {MEMORY[chip]} GiB: {needed}: {remedy}", file=sys.stderr)
    raise SystemExit(3)


def topology_mesh(config: Config, topology: str, slices: int) -> jax.sharding.Mesh:
    """Returns the mesh of slices such as v5p:8x8x4 or v5e:16x16: of descriptions that only a compiler can use."""
    set_flags()
    # keeps libtpu from asking the cloud which machine this is, and from locking out a second process
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    chip, _, shape = topology.partition(":")
    sides, flat = [int(side) for side in shape.split("x") if side.isdecimal()], chip in ("v5e", "v6e")
    if chip not in MEMORY or len(sides) != (2 if flat else 3) or slices < 1 or (flat and max(sides) > 16):
        wanted = f"{', '.join(MEMORY)} with its lengths, such as v5p:8x8x4 or v5e:16x16, and --slices of at least 1"
        raise InputError(f"--topology {topology} --slices {slices}: there is no such slice: give {wanted}")
    try:
        # which sides wrap around: in 3D all, if made of whole 4 x 4 x 4 cubes; in 2D those of a whole pod
        wrap = [side == 16 for side in sides] + [False] if flat else [all(s % 4 == 0 for s in sides)] * 3
        options = {"wrap": wrap, "num_slices": slices} | ({"chip_config_name": "megacore"} if chip == "v4" else {})
        devices = list(topologies.get_topology_desc(topology, "tpu", **options).devices)
    except Exception as error:  # from libtpu, or because it is not installed
        raise InputError(f"--topology {topology}: give another, or pip install 'jax[tpu]': {error}") from None
    return make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor, devices)


@dataclasses.dataclass(frozen=True)
class CompileCommand:
    """Compiles the training step for TPUs that are not here, and reports its memory and FLOPs."""

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: tyro.extras.literal_type_from_choices(PRESETS) = "tiny"  # settings, which those below override
    topology: str = "v5p:8x8x4"  # chip and size of a slice
    slices: int = 1  # of that topology
    batch_per_device: int | None = None  # sequences per device and step; 4 if --batch-size is not given (-1)
    hlo: str = ""  # file for the text of the compiled program; "": none


@ending_with_messages()
def main() -> None:
    parse = functools.partial(tyro.cli, CompileCommand, prog=f"python -m {__package__}.compile")
    given, _ = parse(default=CompileCommand(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    # the preset gives the other defaults, except the batch size
    command = parse(default=CompileCommand(dataclasses.replace(PRESETS[given.preset], batch_size=-1)))
    config, per_device = command.config, command.batch_per_device
    mesh = topology_mesh(config, command.topology, command.slices)
    if config.batch_size == -1:
        config = dataclasses.replace(config, batch_size=(4 if per_device is None else per_device) * mesh.size)
    elif per_device is not None:
        raise InputError("--batch-size and --batch-per-device say the same: give one of them")
    check_config(config)
    chip = command.topology.partition(":")[0]
    try:
        with jax.set_mesh(mesh):
            with point("compile.step", config, mesh):
                compiled = compile_step(abstract(lambda: new_state(config), mesh), abstract_batch(config, mesh))
    except jax.errors.JaxRuntimeError as error:
        if not (words := re.search(r"Ran out of memory .*hbm.*[^.]", str(error), re.IGNORECASE)):
            raise
        end_as_too_large(chip, words[0])

    memory = compiled.memory_analysis()
    arguments, temporaries = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes  # the rest reuses the memory of arguments
    total = arguments + temporaries + new
    print(f"{command.preset} for {mesh.size} {chip}")
    print(f"bytes per device: arguments {arguments:,}, temporaries {temporaries:,}, total {total:,}")
    point("compile.memory", memory)
    tokens = config.batch_size * config.sequence_length / mesh.size
    full, causal = (tokens * flops_per_token(config, causal) for causal in (False, True))
    print(f"FLOPs per device and step: {full:.3e} with full attention, {causal:.3e} with its causal half")
    if command.hlo:
        Path(command.hlo).write_text(compiled.as_text())
        print(f"compiled program: {command.hlo}")
    if total > MEMORY[chip] * 2**30:
        end_as_too_large(chip, f"{total / 2**30:.1f} GiB")
    print(f"{total / 2**30:.1f} GiB: fits {chip} with {MEMORY[chip]} GiB")


if __name__ == "__main__":
    main()
