"""Compilation for TPUs that are not here."""

import dataclasses
import functools
import os
import time
from pathlib import Path

import jax
import tyro
from jax.experimental import topologies

from generator.marks import setting
from generator.roles import (
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

MEMORY = setting("memory_gib")  # of one chip


def topology_devices(topology: str) -> list[jax.Device]:
    """The chips of a topology such as v5p:8x8x4, or v5e:16x16: descriptions that only a compiler can use."""
    set_flags()
    # libtpu shall neither ask the cloud which machine this is, nor lock out a second process
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    chip = topology.partition(":")[0]
    if chip not in MEMORY:
        raise InputError(f"--topology {topology}: {chip} is not one of {', '.join(MEMORY)}; an example: v5p:8x8x4")
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except Exception as error:  # whatever libtpu raises, or that it is not installed
        raise InputError(f"--topology {topology}: {error}; libtpu comes with pip install 'jax[tpu]'") from None


@dataclasses.dataclass(frozen=True)
class CompileCommand:
    """Compiles the training step for TPUs that are not here, and tells its memory and FLOPs."""

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: tyro.extras.literal_type_from_choices(PRESETS) = "tiny"  # settings that those below replace
    topology: str = "v5p:8x8x4"  # chip and size of the slice
    batch_per_device: int = 4  # sequences that each chip takes in a step; this times the chips is the batch size
    hlo: str = ""  # file for the text of the compiled program; "": none


@ending_with_messages()
def main() -> None:
    parse = functools.partial(tyro.cli, CompileCommand, prog=f"python -m {__package__}.compile")
    given, _ = parse(default=CompileCommand(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    command = parse(default=CompileCommand(PRESETS[given.preset]))  # the preset decides the defaults of the rest
    devices = topology_devices(command.topology)
    config = dataclasses.replace(command.config, batch_size=command.batch_per_device * len(devices))
    check_config(config)
    start = time.perf_counter()
    mesh = make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor, devices)
    with jax.set_mesh(mesh):
        compiled = compile_step(abstract(lambda: new_state(config), mesh), abstract_batch(config, mesh))
    chip = command.topology.partition(":")[0]
    print(f"{command.preset} for {len(devices)} {chip}, compiled in {time.perf_counter() - start:.0f} s")

    memory = compiled.memory_analysis()
    arguments, temporaries = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes  # the rest takes the place of arguments
    total = arguments + temporaries + new
    verdict = "fits" if total <= MEMORY[chip] * 2**30 else "DOES NOT FIT"
    print(f"bytes per device: arguments {arguments:,}, temporaries {temporaries:,}, total {total:,}")
    print(f"{total / 2**30:.1f} GiB: {verdict} {chip} with {MEMORY[chip]} GiB")

    tokens = command.batch_per_device * config.sequence_length
    full, causal = (tokens * flops_per_token(config, causal) for causal in (False, True))
    print(f"FLOPs per device and step: {full:.3e} with full attention, {causal:.3e} with its causal half, by formula;")
    print(f"{compiled.cost_analysis()['flops']:.3e} by XLA's count, which takes a scanned layer once")
    if command.hlo:
        Path(command.hlo).write_text(compiled.as_text())
        print(f"compiled program: {command.hlo}")


if __name__ == "__main__":
    main()
