"""Norms on what selects in Mamba: steps, and the places where a state is written and read.

Source: Lieber et al. 2024, arXiv 2403.19887, section 6.4.
"""

from generator.language import requires, splice
from generator.language.roles import Norm

requires("mamba1")


@splice("Mamba.parameters")
def _(self, config, R, S):
    self.step_norm = Norm(R, config.norm_epsilon)
    self.write_norm = Norm(S, config.norm_epsilon)
    self.read_norm = Norm(S, config.norm_epsilon)


@splice("Mamba.selection")
def _(self, low_step, write, read):
    low_step, write, read = self.step_norm(low_step), self.write_norm(write), self.read_norm(read)


@splice("hf.layer_tensors")
def _():
    yield "mamba.step_norm.scale", "model.layers.{}.mamba.dt_layernorm.weight", "r -> r"
    yield "mamba.write_norm.scale", "model.layers.{}.mamba.b_layernorm.weight", "s -> s"
    yield "mamba.read_norm.scale", "model.layers.{}.mamba.c_layernorm.weight", "s -> s"
