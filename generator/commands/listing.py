"""What there is to build, and what has been built."""

from __future__ import annotations

from pathlib import Path

from generator.commands.citation import title_and_citation
from generator.commands.tables import Table
from generator.disk.built import MappedPackage
from generator.disk.lock import LOCK
from generator.disk.look import files_below, read_text
from generator.disk.project import Project
from generator.errors import LoomError
from generator.recipe.toml import parse_toml

PACKAGE_FILE = "templates/package.toml"
PLACES = {
    "architectures": ("templates/architectures", ".toml"),
    "targets": ("targets", "/target.toml"),
    "fragments": ("fragments", ".py"),
}


def listing(project: Project) -> dict[str, list[dict]]:
    """The architectures, targets and fragments by name, and the packages that are kept."""
    found: dict[str, list[dict]] = {kind: [] for kind in PLACES}
    for kind, (folder, suffix) in PLACES.items():
        for root in project.roots:
            found[kind] += [
                _entry(root, folder, name, suffix) for name in files_below(root / folder) if _is(name, suffix)
            ]
        found[kind].sort(key=lambda entry: entry["name"])
    files = [root / PACKAGE_FILE for root in project.roots if (root / PACKAGE_FILE).is_file()]
    tables = [parse_toml(read_text(path), str(path)).get("parts", {}) for path in files]
    parts = [item for table in tables for item in table.items()]
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


def _is(name: str, suffix: str) -> bool:
    # fragments stand in a folder; roles.py and __init__.py above them are none
    in_folder = suffix != ".py" or ("/" in name and not name.endswith("__init__.py"))
    return name.endswith(suffix) and in_folder


def _entry(root: Path, folder: str, name: str, suffix: str) -> dict:
    path = root / folder / name
    try:
        title, citation = title_and_citation(name, path.read_bytes().decode("utf-8"))
    except UnicodeDecodeError:
        raise LoomError("is not UTF-8 text", str(path), "Save it as UTF-8.") from None
    return {"name": name.removesuffix(suffix), "title": title, "citation": citation}


def tables(found: dict[str, list[dict]]) -> list[Table]:
    """The listing as tables for people."""
    result = []
    for kind in (*PLACES, "parts"):
        rows = [(entry["name"], entry["title"]) for entry in found[kind]] or [("(none)", "")]
        result.append(Table(kind.capitalize(), (kind.removesuffix("s"), "title"), rows))
    packages = [
        (
            p["name"],
            "built" if p["built"] else "not built",
            "yes" if p["committed"] else "lock alone",
            ", ".join(p["parts"]),
        )
        for p in found["packages"]
    ]
    heads = ("package", "", "committed", "parts")
    return [*result, Table("Packages", heads, packages or [("(none)", "", "", "")])]
