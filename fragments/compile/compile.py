"""Compilation for devices that are not here."""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Literal

import tyro

from generator.language import point, requires, splice
from generator.language.roles import (
    CHIPS,
    FLAGS,
    PRESETS,
    Config,
    InputError,
    check_config,
    ending_with_messages,
    set_flags,
)

requires("compile_tpu or compile_gpu")


@splice("Chip.fields")
def _():
    usable_gib: float  # memory of one device that programs may use


def does_not_fit(chip: str, needed: str) -> str:
    """Returns the message for a step that a device has no memory for, with what would make it smaller."""
    remedy = "give fewer sequences to a device, a --remat that keeps less, a larger --mesh-fsdp or more devices"
    return f"error: DOES NOT FIT {chip} with {CHIPS[chip].usable_gib:g} GiB: {needed}: {remedy}"


@dataclasses.dataclass(frozen=True)
class CompileCommand:
    """Compiles the training step for devices that are not here, and reports its memory and FLOPs."""

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: Literal[*PRESETS] = "tiny"  # settings, which those below override
    point("CompileCommand.hardware")
    point("CompileCommand.devices")
    batch_per_device: int | None = None  # sequences per device and step; 4 if --batch-size is not given (-1)
    hlo: str = ""  # file for the text of the compiled program; "": none
    point("CompileCommand.fields")


@ending_with_messages()
def main() -> None:
    parse = functools.partial(tyro.cli, CompileCommand, prog=f"python -m {__package__}.compile")
    first_pass, _ = parse(default=CompileCommand(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    # -1 unless the command line gives another: the preset's batch is for other devices
    config = dataclasses.replace(PRESETS[first_pass.preset], batch_size=-1)
    with point("compile.default", first_pass, config):
        default = CompileCommand(config)
        set_flags(FLAGS)
    command = parse(default=default)
    point("compile.start", command)
    # after help and refusals, as they import JAX
    import jax

    from generator.language.roles import abstract, abstract_batch, compile_step, flops_per_token, make_mesh, new_state

    point("compile.main", jax)
    config, per_device = command.config, command.batch_per_device
    with point("compile.mesh", command, config):
        chip = jax.devices()[0].device_kind
        mesh = make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor)
    if config.batch_size == -1:
        config = dataclasses.replace(config, batch_size=(4 if per_device is None else per_device) * mesh.size)
    elif per_device is not None:
        raise InputError("--batch-size and --batch-per-device say the same: give one of them")
    check_config(config)
    if command.hlo:
        Path(command.hlo).touch()  # fails now, and not after minutes
    with jax.set_mesh(mesh):
        with point("compile.step", config, mesh, chip, jax):
            compiled = compile_step(abstract(lambda: new_state(config), mesh), abstract_batch(config, mesh), config)

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
    point("compile.report", command, config, mesh, chip, compiled, total, full, causal)
    if command.hlo:
        Path(command.hlo).write_text(compiled.as_text())
    if total > CHIPS[chip].usable_gib * 2**30:
        print(does_not_fit(chip, f"{total / 2**30:.1f} GiB"), file=sys.stderr)
        sys.exit(3)
    print(f"{total / 2**30:.1f} GiB: fits {chip} with {CHIPS[chip].usable_gib:g} GiB")


if __name__ == "__main__":
    main()
