"""Refuses fewer layers than stand before those that repeat."""

from generator.language import setting, splice


@splice("check_config.together")
def _(config, problems):
    if setting("least_layers") > 1:
        if config.layers < setting("least_layers"):
            problems.append(f"--layers {config.layers}: must be at least {setting('least_layers')}")
