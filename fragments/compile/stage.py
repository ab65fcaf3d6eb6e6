"""The stage axis of the mesh that a step is compiled for."""

from generator.language import provide, requires

requires("compile/compile", "pipeline/pipeline")


@provide("topology_mesh")
def stage(config) -> int:
    return config.mesh_stage
