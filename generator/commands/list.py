"""`gen list`: lists the sources, and the packages."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.citation import parse_title_and_citation
from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.commands.tables import Table, format_text
from generator.disk.built import MappedPackage
from generator.disk.files import list_files, read_plain_file
from generator.disk.lock import LOCK
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.recipe.schema import ALL, LEFT_OUT
from generator.recipe.toml import parse_toml

PACKAGE_FILE = "templates/package.toml"
PLACES = {
    "architectures": ("templates/architectures", ".toml"),
    "targets": ("targets", "/target.toml"),
    "fragments": ("fragments", ".py"),
}
KINDS = *PLACES, "parts", "packages"


@click.command("list", **NO_ONE)
@click.argument("kind", metavar="[KIND]", required=False, type=click.Choice(KINDS))
@AS_JSON
def command(kind: str | None, as_json: bool) -> None:
    """List the architectures, targets, fragments, parts and packages; with a KIND, such as parts, only these."""
    listing = {name: rows for name, rows in list_sources(Project.find()).items() if kind in (None, name)}
    write_json(listing) if as_json else click.echo("\n\n".join(map(format_text, create_listing_tables(listing))))


def list_sources(project: Project) -> dict[str, list[dict]]:
    """Lists the architectures, targets and fragments by name, the parts, and the listed packages."""
    listing: dict[str, list[dict]] = {}
    for kind, (folder, suffix) in PLACES.items():
        paths = [(root / folder, name) for root in project.roots for name in list_files(root / folder)]
        entries = [_read_entry(place, name, suffix) for place, name in paths if _is_source(name, suffix)]
        listing[kind] = sorted(entries, key=lambda entry: entry["name"])
    files = [root / PACKAGE_FILE for root in project.roots if (root / PACKAGE_FILE).is_file()]
    parts = [item for path in files for item in parse_toml(read_plain_file(path), str(path)).get("parts", {}).items()]
    listing["parts"] = [{"name": name, "title": str(part.get("title", ""))} for name, part in parts]
    _check_packages(project, {kind: [entry["name"] for entry in entries] for kind, entries in listing.items()})
    listing["packages"] = [
        {
            **combination._asdict(),
            "name": combination.name,
            "committed": combination not in project.listing.uncommitted,
            "built": _is_built(project.generated / combination.name),
        }
        for combination in project.packages()
    ]
    return listing


def _check_packages(project: Project, known: dict[str, list[str]]) -> None:
    """Refuses a listed package of an architecture, a target or a part that does not exist."""
    for package in project.listing.packages or ():
        named = [("architecture", package.architecture), ("target", package.target)]
        for kind, name in [*named, *(("part", part.removeprefix(LEFT_OUT)) for part in package.parts)]:
            if name not in (names := [*known[f"{kind}s"], *([ALL] if kind == "part" else [])]):
                message = f"unknown {kind} {name!r}"
                raise LoomError(message, project.listing.places[package.name], nearest(name, names))


def _is_built(folder: Path) -> bool:
    try:
        return MappedPackage.read(folder).has_files
    except LoomError:
        return (folder / LOCK).is_file()


def _is_source(name: str, suffix: str) -> bool:
    # fragments are in subfolders; roles.py and __init__.py above them are not fragments
    is_fragment = suffix != ".py" or ("/" in name and not name.endswith("__init__.py"))
    return name.endswith(suffix) and is_fragment


def _read_entry(folder: Path, name: str, suffix: str) -> dict:
    title, citation = parse_title_and_citation(name, read_plain_file(folder / name, "Save it as UTF-8."))
    return {"name": name.removesuffix(suffix), "title": title, "citation": citation}


def create_listing_tables(listing: dict[str, list[dict]]) -> list[Table]:
    """Creates the tables that people read, of the kinds in the listing."""
    return [_create_table(kind, entries) for kind, entries in listing.items()]


def _create_table(kind: str, entries: list[dict]) -> Table:
    if kind != "packages":
        rows = [(entry["name"], entry["title"]) for entry in entries] or [("(none)", "")]
        return Table(kind.capitalize(), (kind.removesuffix("s"), "title"), rows)
    packages = []
    for entry in entries:
        built, committed = "built" if entry["built"] else "not built", "yes" if entry["committed"] else "lock alone"
        packages.append((entry["name"], built, committed, ", ".join(entry["parts"])))
    return Table("Packages", ("package", "", "committed", "parts"), packages or [("(none)", "", "", "")])
