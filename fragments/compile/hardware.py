"""Compilation for the hardware of a recipe."""

import dataclasses

from generator.language import point, requires, splice
from generator.language.roles import CompileCommand, find_recipe, set_flags

requires("compile/compile", "train/hardware")


@splice("CompileCommand.hardware")
def _():
    hardware: str = ""  # of a recipe, whose settings and devices are the defaults


@splice("compile.default")
def _(first_pass, config, default):
    recipe, flags = find_recipe(first_pass.preset, first_pass.hardware)
    set_flags(flags)
    default = CompileCommand(dataclasses.replace(config, **recipe))
    if first_pass.hardware:
        point("compile.hardware", first_pass, default)
