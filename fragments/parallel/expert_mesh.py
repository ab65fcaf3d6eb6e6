"""A mesh with an expert axis.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.2.
"""

from typing import Annotated

from generator.language import provide, requires, splice

requires("experts")


class ParallelConfig:
    mesh_expert: Annotated[int, -1, 1_000_000] = 1  # devices that shard parameters and batch, each with its own experts


@provide("make_mesh", optional=True)
def expert() -> int:
    return 1


@splice("make_mesh.sizes")
def _(sizes, expert):
    sizes["expert"] = expert


@provide("train")
def expert(config) -> int:
    return config.mesh_expert
