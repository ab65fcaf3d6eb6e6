"""All layers are in periods: a number of layers that leaves some over is refused, as they would be left out."""

from generator.marks import requires, setting, splice
from generator.roles import InputError

requires("period")


@splice("train.settings")
def _(config):
    if setting("whole_period") > 1:
        if config.layers % setting("whole_period"):
            raise InputError(f"--layers {config.layers}: must be a multiple of the period, {setting('whole_period')}")
