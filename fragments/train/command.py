"""The command line of training."""

import dataclasses
import functools
import os
import sys
from typing import Literal

import tyro

from generator.language import point
from generator.language.roles import PRESETS, Config, check_config, ending_with_messages


def group_settings(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
    """Lists the settings of each of Config's base classes as a group of --help."""
    if info.type is not Config:
        return None
    fields = []
    for base in Config.__bases__:
        default = base(**{field.name: getattr(info.default, field.name) for field in dataclasses.fields(base)})
        fields.append(tyro.constructors.StructFieldSpec(base.__name__, base, default))

    def instantiate(**groups: object) -> Config:
        return Config(**{name: value for group in groups.values() for name, value in vars(group).items()})

    return tyro.constructors.StructConstructorSpec(instantiate, tuple(fields))


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """Trains a model.

    Continues from --checkpoint-dir if it holds a checkpoint, with its settings except those given here.
    """

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: Literal["", *PRESETS] = ""  # defaults; "": those of a checkpoint
    point("CommandLine.fields")


@ending_with_messages()
def main() -> None:
    point("command.start")
    registry = tyro.constructors.ConstructorRegistry()
    registry.struct_rule(group_settings)
    parse = functools.partial(tyro.cli, CommandLine, prog=f"python -m {__package__}.train", registry=registry)
    first_pass, _ = parse(default=CommandLine(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    default = PRESETS[first_pass.preset or "tiny"]
    point("command.default", default, first_pass)
    config = parse(default=CommandLine(default)).config
    if first_pass.preset or not config.checkpoint_dir:
        check_config(config)
    # after help and refusals, as they import JAX
    import jax

    from generator.language.roles import join_job, newest_config, train

    point("command.given", first_pass)
    join_job()
    point("command.joined", first_pass)
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w")
    if not first_pass.preset and (saved := newest_config(config.checkpoint_dir)):
        config = parse(default=CommandLine(saved)).config
    train(config)


if __name__ == "__main__":
    main()
