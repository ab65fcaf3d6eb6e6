"""`gen points`: lists the join points of the library, the names that each shows, and the fragments that splice."""

from __future__ import annotations

from collections.abc import Iterable

import click

from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.commands.tables import Table, format_text
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weave.branches import find_branches
from generator.weave.points import find_points_of


@click.command("points", **NO_ONE)
@click.option("--architecture", metavar="ARCH", help="List only the points of fragments that it selects.")
@AS_JSON
def command(architecture: str | None, as_json: bool) -> None:
    """List the join points: place, names that a splice sees there, and the fragments that splice."""
    entries = list_points(Project.find().library(), architecture)
    write_json(entries) if as_json else click.echo(format_text(create_points_table(entries)))


def list_points(library: Library, architecture: str | None = None) -> list[dict]:
    """Lists the join points, sorted by name and place.

    Args:
        architecture: restricts them to the fragments that it selects, on any target.

    Returns:
        For each point its `name`, `fragment` and place (`at`), the local names (`shows`) and the expressions (`named`)
        that it shows, whether it has statements that a splice may replace or wrap (`wraps`), and the `splices`, each
        with the points of its branches that have other statements (`instead`).
    """
    fragments = _select_fragments(library, architecture) if architecture is not None else library.everything
    splices: dict[str, list[dict]] = {}
    for fragment in fragments:
        for splice in fragment.splices:
            entry: dict = {"fragment": fragment.name, "at": str(splice.origin), "optional": splice.optional}
            entry["instead"] = [point for branch in find_branches(splice) for point in branch.points]
            splices.setdefault(splice.point, []).append(entry)
    entries = [
        {
            "name": point.name,
            "fragment": fragment.name,
            "at": point.where,
            "shows": list(point.shown),
            "named": point.named,
            "wraps": point.is_block,
            "splices": splices.get(point.name, []),
        }
        for fragment in fragments
        for point in find_points_of(fragment)
    ]
    return sorted(entries, key=lambda entry: (entry["name"], entry["at"]))


def _select_fragments(library: Library, architecture: str) -> list[Fragment]:
    """Returns the fragments that an architecture selects on any target, in the order of the library."""
    if architecture not in library.architectures():
        raise LoomError(f"unknown architecture {architecture!r}", remedy=nearest(architecture, library.architectures()))
    recipes = [select(architecture, target, library) for target in library.targets()]
    names = {fragment.name for recipe in recipes for fragment in recipe.fragments}
    names |= {name for recipe in recipes for name in recipe.pattern.kind_fragments}
    return [fragment for fragment in library.everything if fragment.name in names]


def create_points_table(entries: Iterable[dict]) -> Table:
    """Creates the table that people read; `with` marks a point that has statements."""
    rows = [
        (
            f"with {entry['name']}" if entry["wraps"] else entry["name"],
            entry["at"],
            ", ".join([*entry["shows"], *(f"{word}={text}" for word, text in entry["named"].items())]),
            ", ".join(
                splice["fragment"] + f" (or {', '.join(splice['instead'])})" * bool(splice["instead"])
                for splice in entry["splices"]
            ),
        )
        for entry in entries
    ]
    note = (
        "`with`: it has statements, which a splice replaces, or wraps with proceed(). `or`: in one branch of a splice\n"
    )
    note += "the statements are not these, but those with the points that are named."
    return Table("Points", ("point", "at", "shows", "spliced by"), rows or [("(none)", "", "", "")], note)
