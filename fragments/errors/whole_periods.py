"""Whole periods: refuses a number of layers that leaves some over, as they would be left out."""

from generator.language import requires, setting, splice
from generator.language.roles import Config, InputError

requires("period")


def layers_left_over(config: Config) -> list[str]:
    """Returns a problem if the number of layers does not fill the last period."""
    if setting("layers_outside"):
        outside = setting("layers_outside")
        period = setting("whole_period")
        if config.layers < outside or (config.layers - outside) % period:
            return [f"--layers {config.layers}: must be {outside} and a multiple of the period, {period}"]
        return []
    else:
        is_whole = config.layers % setting("whole_period") == 0
        return (
            []
            if is_whole
            else [f"--layers {config.layers}: must be a multiple of the period, {setting('whole_period')}"]
        )


def check_layers(config: Config) -> None:
    """Refuses layers that are left over, as check_config does, for code that makes a Decoder without it.

    Raises:
        InputError: the layers do not fill the last period.
    """
    for problem in layers_left_over(config):
        raise InputError(problem)


@splice("check_config.together")
def _(config, problems):
    if setting("whole_period") > 1:
        problems += layers_left_over(config)


@splice("Decoder.parameters")
def _(config):
    if setting("whole_period") > 1:
        check_layers(config)
