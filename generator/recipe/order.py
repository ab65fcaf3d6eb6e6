"""Applies `[order]` of an architecture: the order of splices at a point, whatever their fragments declare."""

from __future__ import annotations

from dataclasses import replace

from generator.errors import LoomError, nearest
from generator.language.parts import Splice
from generator.recipe.recipe import Recipe


def order_splices(recipe: Recipe) -> Recipe:
    """Returns the recipe with splices in the order of the architecture, or of its nearest base that has one."""
    tables = [file.data for file in recipe.lineage]
    order = {point: (names, table.origin("order", point)) for table in tables for point, names in table.order.items()}
    for point, (names, origin) in order.items():
        _check_order(point, names, str(origin), recipe)
    names_at = {point: names for point, (names, _) in order.items()}
    fragments = (
        replace(f, splices=tuple(_put_after(splice, names_at.get(splice.point, ())) for splice in f.splices))
        for f in recipe.fragments
    )
    return replace(recipe, fragments=tuple(fragments))


def _put_after(splice: Splice, names: tuple[str, ...]) -> Splice:
    """Returns a splice that comes after those of the fragments before its own in `names`."""
    if splice.fragment not in names:
        return splice
    others = {form for name in names for form in (name, name.split("/")[-1])}
    before = tuple(name for name in splice.before if name not in others)
    after = tuple(name for name in splice.after if name not in others)
    return replace(splice, before=before, after=after + names[: names.index(splice.fragment)])


def _check_order(point: str, names: tuple[str, ...], where: str, recipe: Recipe) -> None:
    """Refuses an order of fragments without a splice at a point, unless they are left out."""
    if len({*names}) < max(len(names), 2):
        message = f"the order at {point!r} is not one of two fragments or more, each named once"
        raise LoomError(message, where, "Name those that rebind the same, in the order that they have.")
    left_out = {fragment.name for fragment in recipe.left_out}
    spliced = {f.name for f in recipe.fragments if any(splice.point == point for splice in f.splices)}
    for name in names:
        if name not in spliced | left_out:
            raise LoomError(f"{name} has no splice for the point {point!r}", where, nearest(name, spliced))
