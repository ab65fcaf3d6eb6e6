"""`gen list`: what there is to build, and what has been built."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.citation import title_and_citation
from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.commands.tables import Table, format_text
from generator.disk.built import MappedPackage
from generator.disk.files import files_below, read_plain_file
from generator.disk.lock import LOCK
from generator.disk.project import Project
from generator.errors import LoomError
from generator.recipe.toml import parse_toml

PACKAGE_FILE = "templates/package.toml"
PLACES = {
    "architectures": ("templates/architectures", ".toml"),
    "targets": ("targets", "/target.toml"),
    "fragments": ("fragments", ".py"),
}


@click.command("list", **NO_ONE)
@AS_JSON
def command(as_json: bool) -> None:
    """List the architectures, targets, fragments, parts and packages."""
    found = listing(Project.find())
    write_json(found) if as_json else click.echo("\n\n".join(format_text(table) for table in tables(found)))


def listing(project: Project) -> dict[str, list[dict]]:
    """The architectures, targets and fragments by name, and the packages that are kept."""
    found: dict[str, list[dict]] = {}
    for kind, (folder, suffix) in PLACES.items():
        paths = [(root / folder, name) for root in project.roots for name in files_below(root / folder)]
        entries = [_entry(place, name, suffix) for place, name in paths if _is_source(name, suffix)]
        found[kind] = sorted(entries, key=lambda entry: entry["name"])
    files = [root / PACKAGE_FILE for root in project.roots if (root / PACKAGE_FILE).is_file()]
    parts = [item for path in files for item in parse_toml(read_plain_file(path), str(path)).get("parts", {}).items()]
    found["parts"] = [{"name": name, "title": str(part.get("title", ""))} for name, part in parts]
    found["packages"] = [
        {
            **combination._asdict(),
            "name": combination.name,
            "committed": combination not in project.uncommitted(),
            "built": _is_built(project.generated / combination.name),
        }
        for combination in project.packages()
    ]
    return found


def _is_built(folder: Path) -> bool:
    try:
        return MappedPackage.read(folder).is_there
    except LoomError:
        return (folder / LOCK).is_file()


def _is_source(name: str, suffix: str) -> bool:
    # fragments stand in a folder; roles.py and __init__.py above them are none
    in_folder = suffix != ".py" or ("/" in name and not name.endswith("__init__.py"))
    return name.endswith(suffix) and in_folder


def _entry(folder: Path, name: str, suffix: str) -> dict:
    title, citation = title_and_citation(name, read_plain_file(folder / name, "Save it as UTF-8."))
    return {"name": name.removesuffix(suffix), "title": title, "citation": citation}


def tables(found: dict[str, list[dict]]) -> list[Table]:
    """The listing as tables for people."""
    result = []
    for kind in (*PLACES, "parts"):
        rows = [(entry["name"], entry["title"]) for entry in found[kind]] or [("(none)", "")]
        result.append(Table(kind.capitalize(), (kind.removesuffix("s"), "title"), rows))
    packages = []
    for entry in found["packages"]:
        built, committed = "built" if entry["built"] else "not built", "yes" if entry["committed"] else "lock alone"
        packages.append((entry["name"], built, committed, ", ".join(entry["parts"])))
    heads = ("package", "", "committed", "parts")
    return [*result, Table("Packages", heads, packages or [("(none)", "", "", "")])]
