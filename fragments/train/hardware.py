"""Recipes: settings of a preset and flags of the compiler for some hardware."""

import dataclasses

from generator.language import splice
from generator.language.roles import CHIPS, FLAGS, HARDWARE, RECIPES, InputError, set_flags


def find_recipe(preset: str, hardware: str) -> tuple[dict[str, object], str]:
    """Returns the settings that a preset takes on some hardware, and the compiler's flags; "": FLAGS alone."""
    if not hardware:
        return {}, FLAGS
    if (preset, hardware) not in RECIPES:
        known = "; ".join(f"--preset {name} --hardware {other}" for name, other in RECIPES) or "none"
        choice = f"--preset {preset} --hardware {hardware}" if preset else f"--hardware {hardware} without --preset"
        raise InputError(f"{choice}: no recipe: there are {known}")
    recipe = RECIPES[preset, hardware]
    return recipe.settings, f"{HARDWARE[hardware].flags or FLAGS} {recipe.flags}".strip()


def check_hardware(hardware: str) -> None:
    """Refuses devices that are not those of a recipe, or several times as many, as in several slices."""
    import jax

    kind = jax.devices()[0].device_kind
    count = jax.device_count()
    devices = HARDWARE[hardware].devices
    chip = CHIPS[HARDWARE[hardware].topology.partition(":")[0]]
    if kind not in chip.kinds or count % devices:
        raise InputError(f"--hardware {hardware}: has {devices} devices, and here are {count} of {kind}: give another")


@splice("CommandLine.fields", before="recovery")
def _():
    hardware: str = ""  # of a recipe, such as v5p-512: settings for it in place of the preset's, and compiler flags


@splice("command.default")
def _(default, first_pass):
    recipe, flags = find_recipe(first_pass.preset, first_pass.hardware)
    set_flags(flags)
    default = dataclasses.replace(default, **recipe)


@splice("command.joined")
def _(first_pass):
    if first_pass.hardware:
        check_hardware(first_pass.hardware)
