"""The command line of training."""

import dataclasses
import functools
import os
import sys
from typing import Literal

import jax
import tyro

from generator.language import point
from generator.language.roles import PRESETS, Config, ending_with_messages, join_job, newest_config, train


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
    parse = functools.partial(tyro.cli, CommandLine, prog=f"python -m {__package__}.train")
    # defaults come from the preset, or else from the checkpoint that is continued
    given, _ = parse(default=CommandLine(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    point("command.given", given)
    join_job()
    point("command.joined", given)
    default = PRESETS.get(given.preset) or newest_config(given.config.checkpoint_dir) or PRESETS["tiny"]
    point("command.default", default)
    config = parse(default=CommandLine(default)).config
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w")
    train(config)


if __name__ == "__main__":
    main()
