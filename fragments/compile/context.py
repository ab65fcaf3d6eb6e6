"""The context axis of the mesh that a step is compiled for."""

from generator.language import provide, requires

requires("compile/compile", "parallel/context")


@provide("topology_mesh")
def context(config) -> int:
    return config.mesh_context
