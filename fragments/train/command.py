"""The command line of training."""

import argparse
import dataclasses
import os
import sys

import jax
import tyro

from generator.marks import point
from generator.roles import PRESETS, Config, DataError, MeshError, newest_config, train


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """Trains a model.

    Given a --checkpoint-dir that holds a checkpoint, it goes on from there, with its settings but for those given here.
    """

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: tyro.extras.literal_type_from_choices(PRESETS) = "tiny"  # settings that those below replace


def main() -> None:
    point("command.start")
    # the preset, or else the checkpoint that is gone on with, decides the defaults of the rest
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--checkpoint-dir", default="")
    given = parser.parse_known_args()[0]
    default = PRESETS.get(given.preset) or newest_config(given.checkpoint_dir) or PRESETS["tiny"]
    command = CommandLine(config=default)
    config = tyro.cli(CommandLine, prog=f"python -m {__package__}.train", default=command).config
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()
    if jax.process_index() > 0:
        sys.stdout = open(os.devnull, "w")
    try:
        train(config)
    except (DataError, MeshError, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
