"""The expert axis of the mesh that a step is compiled for."""

from generator.language import provide, requires

requires("compile/compile", "parallel/expert_mesh")


@provide("topology_mesh")
def expert(config) -> int:
    return config.mesh_expert
