"""All layers are in periods: a number of layers that leaves some over is refused, as they would be left out."""

from generator.marks import requires, setting, splice
from generator.roles import InputError

requires("period")


@splice("check_config.together")
def _(config, problems):
    if setting("whole_period") > 1:
        if config.layers % setting("whole_period"):
            problems.append(f"--layers {config.layers}: must be a multiple of the period, {setting('whole_period')}")


@splice("Decoder.parameters")
def _(config):
    if setting("whole_period") > 1:
        # check_config says so too, but who makes a Decoder need not call it
        if config.layers % setting("whole_period"):
            raise InputError(f"{config.layers} layers: must be a multiple of the period, {setting('whole_period')}")
