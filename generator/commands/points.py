"""`gen points`: the join points of the library, what a splice sees there, and who splices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from generator.code.traced import Traced
from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.commands.tables import Table, format_text
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weave.points import Point, find_points


@click.command("points", **NO_ONE)
@click.option("--architecture", metavar="ARCH", help="Only the points of what it selects.")
@AS_JSON
def command(architecture: str | None, as_json: bool) -> None:
    """List the join points: place, names that a splice sees there, and the fragments that splice."""
    found = points(Project.find().library(), architecture)
    write_json(found) if as_json else click.echo(format_text(points_table(found)))


def points(library: Library, architecture: str | None = None) -> list[dict]:
    """Lists every join point, by name and place.

    Args:
        architecture: only what it selects, on any target.

    Returns:
        For each point its `name`, `fragment` and place (`at`), the local names (`shows`) and the expressions that it
        shows (`named`), whether it holds statements which a splice may replace or wrap (`wraps`), and the `splices`.
    """
    chosen = _selected(library, architecture) if architecture is not None else library.everything
    splices: dict[str, list[dict]] = {}
    for fragment in chosen:
        for splice in fragment.splices:
            found = {"fragment": fragment.name, "at": str(splice.origin), "optional": splice.optional}
            splices.setdefault(splice.point, []).append(found)
    entries = [
        {
            "name": point.name,
            "fragment": fragment.name,
            "at": point.where,
            "shows": list(dict.fromkeys(point.shown)),
            "named": point.named,
            "wraps": point.is_block,
            "splices": splices.get(point.name, []),
        }
        for fragment in chosen
        for point in _points(fragment)
    ]
    return sorted(entries, key=lambda entry: (entry["name"], entry["at"]))


def _selected(library: Library, architecture: str) -> list[Fragment]:
    """What an architecture selects on any target, in the order of the library."""
    if architecture not in library.architectures():
        raise LoomError(f"unknown architecture {architecture!r}", remedy=nearest(architecture, library.architectures()))
    recipes = [select(architecture, target, library) for target in library.targets()]
    names = {fragment.name for recipe in recipes for fragment in recipe.fragments}
    names |= {name for recipe in recipes for name in recipe.pattern.of_kinds}
    return [fragment for fragment in library.everything if fragment.name in names]


def _points(fragment: Fragment) -> Iterator[Point]:
    """Those of a fragment's definitions, and those in its splices; one that goes to several points has them once."""
    for definition in fragment.definitions:
        yield from find_points(definition.name, definition.text).values()
    seen = set()
    for splice in fragment.splices:
        if splice.origin not in seen:
            seen.add(splice.origin)
            yield from find_points("_", Traced.insert("def _():\n", splice.origin) + splice.body).values()


def points_table(entries: Iterable[dict]) -> Table:
    """The points for people: a block point in `with` is marked, and a splice that may be left out too."""
    rows = [
        (
            f"with {entry['name']}" if entry["wraps"] else entry["name"],
            entry["at"],
            ", ".join([*entry["shows"], *(f"{word}={text}" for word, text in entry["named"].items())]),
            ", ".join(splice["fragment"] for splice in entry["splices"]),
        )
        for entry in entries
    ]
    note = "`with`: it holds statements, which a splice replaces, or wraps with proceed()."
    return Table("Points", ("point", "at", "shows", "spliced by"), rows or [("(none)", "", "", "")], note)
