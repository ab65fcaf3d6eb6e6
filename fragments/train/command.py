"""The command line of training."""

import argparse
import dataclasses
import os
import sys

import jax
import tyro

from generator.roles import PRESETS, Config, DataError, MeshError, train


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """Trains a model. Given a --checkpoint-dir that holds a checkpoint, it continues from there."""

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: tyro.extras.literal_type_from_choices(PRESETS) = "tiny"  # settings that those below replace


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="tiny")
    preset = parser.parse_known_args()[0].preset  # it decides the defaults of the rest
    default = CommandLine(config=PRESETS.get(preset, PRESETS["tiny"]))
    config = tyro.cli(CommandLine, prog=f"python -m {__package__}.train", default=default).config
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
