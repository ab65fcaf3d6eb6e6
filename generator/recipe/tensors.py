"""Names and layouts of tensors that an architecture states: refused where no checkpoint can have them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from generator.errors import LoomError


def check_tensor(stated: Sequence[str], said: Sequence[str], where: str) -> None:
    """Refuses what is no name of a tensor, or no rearrangement of a parameter's axes that leaves it in its place.

    Args:
        stated: the name, and perhaps the layout.
        said: name and layout as the fragment has them.
    """
    name, layout = (*stated, *said[len(stated) :])
    if not re.fullmatch(r"([^\s{}]|\{\})+", name) or not name.isprintable():
        remedy = f"Write one like {said[0]}, where {{}} stands for a number."
        raise LoomError(f"{name!r} cannot be the name of a tensor", where, remedy)
    if not _is_layout(layout):
        remedy = f"Write one like {said[1]}: the same names on both sides, in brackets only such as are neighbours."
        raise LoomError(f"{layout!r} is no layout of a tensor", where, remedy)
    numbers, own = name.count("{}"), said[0].count("{}")
    axes, wanted = numbers + len(_axes(layout)), own + len(_axes(said[1]))
    if said[0] and (axes != wanted or bool(numbers) != bool(own)):
        message = f"{name} has {numbers} {{}} and {layout!r} {len(_axes(layout))} axes"
        raise LoomError(message, where, f"The fragment has {said[0]} and {said[1]!r}: write as many {{}} and axes.")


def _axes(layout: str) -> list[str]:
    return layout.partition("->")[0].split()


def _is_layout(layout: str) -> bool:
    """Whether einops takes it, and gives a view: into a copy, what a checkpoint has would be lost."""
    axes, right = _axes(layout), layout.partition("->")[2]
    groups = re.findall(r"\([^()]*\)|\w+", right)
    inside = [group.strip("()").split() for group in groups]
    names = [name for group in inside for name in group if name != "1"]
    return (
        "".join(groups).replace(" ", "") == right.replace(" ", "")
        and all(name.isidentifier() and name.strip("_") == name for name in axes)
        and bool(axes)
        and len({*axes}) == len(axes)
        and sorted(names) == sorted(axes)
        and all(f" {' '.join(group)} " in f" {' '.join(axes)} " for group in inside if len(group) > 1)
    )
