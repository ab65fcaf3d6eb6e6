"""A mesh with an expert axis.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.2.
"""

from generator.language import provide, requires, splice

requires("experts")


class ParallelConfig:
    mesh_expert: int = 1  # devices that shard parameters and batch, each with its own experts


@splice("check_config.bounds")
def _(bounds):
    bounds.update(mesh_expert=(-1, 2**31 - 1))


@provide("make_mesh", optional=True)
def expert() -> int:
    return 1


@splice("make_mesh.sizes")
def _(data, fsdp, tensor, sizes, expert):
    sizes = {"data": data, "fsdp": fsdp, "expert": expert, "tensor": tensor}


@provide("train")
def expert(config) -> int:
    return config.mesh_expert
