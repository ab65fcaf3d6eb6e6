"""The same flags of the compiler for every preset and all hardware."""

from generator.language import excludes, requires, splice
from generator.language.roles import FLAGS, set_flags

excludes("train/hardware", "train/flags_neuron")
requires("train/flags")


@splice("command.start")
def _():
    set_flags(FLAGS)
