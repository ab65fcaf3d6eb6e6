"""Variables of Neuron's compiler and of its plugin for JAX."""

import os

from generator.language import setting, splice

NEURON_CC_FLAGS = setting("neuron_cc_flags")
NEURON_ENVIRONMENT = setting("neuron_environment")


@splice("command.start")
def _():
    # read when JAX first asks for its devices; what the environment has wins
    for name, value in {"NEURON_CC_FLAGS": " ".join(NEURON_CC_FLAGS), **NEURON_ENVIRONMENT}.items():
        os.environ.setdefault(name, value)
