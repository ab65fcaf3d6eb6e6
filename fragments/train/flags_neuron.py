"""Variables of Neuron's compiler and of its plugin for JAX."""

import os

from generator.language import setting, splice
from generator.language.roles import set_flags

NEURON_CC_FLAGS = setting("neuron_cc_flags")
NEURON_ENVIRONMENT = setting("neuron_environment")
FLAGS_VARIABLE = "NEURON_CC_FLAGS"


@splice("command.start")
def _():
    set_flags(" ".join(NEURON_CC_FLAGS))
    for name, value in NEURON_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # what the environment has wins
