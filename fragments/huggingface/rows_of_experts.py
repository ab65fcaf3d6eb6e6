"""Rows of all experts in one tensor of a checkpoint, where others join parameters along the first axis."""

from generator.language import proceed, requires, splice
from generator.language.roles import Joined

requires("fused_rows")


@splice("hf.joined", after="fused_rows")
def _(tensor, before, view):
    if ".block_sparse_moe." in tensor:
        proceed()
    else:
        view = Joined(*getattr(before, "views", (before,)), view)
