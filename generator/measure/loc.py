"""Counts what the design claims: how few lines make how many, and where lines are said twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from generator.disk.built import MappedPackage
from generator.disk.lock import LOCK, MAP, Combination
from generator.disk.look import files_below
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.measure.clones import clones
from generator.measure.count import HEADER, Lines, code_lines, count, total
from generator.measure.feature import reach
from generator.recipe.tomltext import parse_toml

ARCHITECTURES = "templates/architectures/"
PACKAGE = "templates/package.toml"


def loc(project: Project, packages: list[MappedPackage], features: Sequence[str] = ()) -> dict:
    """All counts, as plain data.

    Args:
        packages: what to count.
        features: fragments to measure by weaving with and without them.
    """
    sources = read_sources(project)
    kept = project.packages()
    source = _source_counts(sources)
    files = {package.name: _package_files(package) for package in packages}
    generated, distinct = _generated_counts(files)
    return {
        "source": {kind: _plain(counts) for kind, counts in source.items()},
        "generator": _plain(_own_counts()),
        "packages": [{"name": name, **_plain(_counts(texts))} for name, texts in files.items()],
        "generated": _plain(generated),
        "generated_distinct": _plain(distinct),
        "ratio": _ratios(total(source["total"]), total(generated), total(distinct)),
        "fragments": _fragment_rows(sources, packages, files),
        "architectures": _architecture_rows(sources, kept),
        "restated": _restated(sources),
        "features": _feature_rows(project, sources, kept, features),
    }


def read_sources(project: Project) -> dict[str, str]:
    """Every source file: path -> text."""
    sources = {}
    for root in project.roots:
        for folder in ("fragments", "templates", "targets"):
            for name in files_below(root / folder):
                path = root / folder / name
                try:
                    sources[f"{folder}/{name}"] = path.read_bytes().decode("utf-8")
                except UnicodeDecodeError:
                    raise LoomError("is not UTF-8 text", project.show(path), "Move it out of the library.") from None
    return dict(sorted(sources.items()))


def _plain(counts: list[Lines]) -> dict[str, int]:
    lines = total(counts)
    return {"files": len(counts), "physical": lines.physical, "code": lines.code}


def _counts(texts: dict[str, str]) -> list[Lines]:
    return [count(path, text) for path, text in texts.items()]


def _source_counts(sources: dict[str, str]) -> dict[str, list[Lines]]:
    kinds: dict[str, list[Lines]] = {"fragments": [], "templates": [], "architectures": [], "targets": [], "total": []}
    for path, text in sources.items():
        kind = "architectures" if path.startswith(ARCHITECTURES) else path.split("/", 1)[0]
        kinds[kind].append(count(path, text))
        kinds["total"].append(kinds[kind][-1])
    return kinds


def _own_counts() -> list[Lines]:
    folder = Path(__file__).resolve().parents[1]
    names = [name for name in files_below(folder) if name.endswith(".py") and not name.startswith("_library/")]
    return [count(name, (folder / name).read_text(encoding="utf-8")) for name in names]


def _package_files(package: MappedPackage) -> dict[str, str]:
    """The files of a package that a person reads: without the lock and the map."""
    names = [name for name in package.lock.outputs if name not in (LOCK, MAP)]
    return {name: "".join(f"{line}\n" for line in package.lines(name)) for name in names}


def _generated_counts(files: dict[str, dict[str, str]]) -> tuple[list[Lines], list[Lines]]:
    """The counts of all files, and of all files that differ in more than the first line, which names the package."""
    counts: list[Lines] = []
    distinct: dict[tuple[str, str], Lines] = {}
    for texts in files.values():
        for path, text in texts.items():
            counts.append(count(path, text))
            body = text.split("\n", 1)[-1] if text.startswith(HEADER) else text
            distinct.setdefault((path.rsplit(".", 1)[-1], body), counts[-1])
    return counts, list(distinct.values())


def _ratios(source: Lines, generated: Lines, distinct: Lines) -> dict[str, float | None]:
    def ratio(made: int, of: int) -> float | None:
        return round(made / of, 2) if of else None

    return {
        "physical": ratio(generated.physical, source.physical),
        "code": ratio(generated.code, source.code),
        "distinct_physical": ratio(distinct.physical, source.physical),
        "distinct_code": ratio(distinct.code, source.code),
    }


def _fragment_rows(
    sources: dict[str, str], packages: list[MappedPackage], files: dict[str, dict[str, str]]
) -> list[dict]:
    """For each fragment its lines of code and those that it makes; a line is made by what its first character is of."""
    made: dict[str, int] = defaultdict(int)
    users: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        for path, origins in package.origins.items():
            for number in code_lines(path, files[package.name].get(path, "")):
                if number <= len(origins) and origins[number - 1]:
                    made[origins[number - 1][0][1].path] += 1
            for segments in origins:
                for _, origin in segments:
                    users[origin.path].add(package.name)
    rows = []
    for path, text in sources.items():
        if path.startswith("fragments/") and path.endswith(".py"):
            counts = count(path, text)
            name = path.removeprefix("fragments/").removesuffix(".py")
            row = {"fragment": name, "physical": counts.physical, "code": counts.code}
            rows.append({**row, "makes": made[path], "packages": len(users[path])})
    return rows


def _architecture_rows(sources: dict[str, str], kept: list[Combination]) -> list[dict]:
    """For each architecture what it adds to what is there: its own file, and fragments that nothing before it selects.

    Before it are the architectures above it, the targets, and what every package has.
    """
    there = [
        path.removeprefix(ARCHITECTURES).removesuffix(".toml") for path in sources if path.startswith(ARCHITECTURES)
    ]
    names = [*(combination.architecture for combination in kept), *there]
    order = dict.fromkeys(one for name in names for one in _lineage(name, sources))
    common = [path for path in sources if path == PACKAGE or path.endswith("/target.toml")]
    rows, seen = [], {fragment for path in common for fragment in _selected(path, sources[path])}
    for name in (name for name in order if name in there):
        path = f"{ARCHITECTURES}{name}.toml"
        new = [fragment for fragment in _selected(path, sources[path]) if fragment not in seen]
        seen.update(new)
        paths = [path, *(f"fragments/{fragment}.py" for fragment in new if f"fragments/{fragment}.py" in sources)]
        lines = total([count(path, sources[path]) for path in paths])
        counts = {"physical": lines.physical, "code": lines.code, "presets": _preset_lines(path, sources[path])}
        rows.append({"architecture": name, **counts, "new_fragments": new})
    return rows


def _lineage(name: object, sources: dict[str, str]) -> list[str]:
    """An architecture after those of its bases that there are."""
    names: list[str] = []
    while isinstance(name, str) and name not in names and (path := f"{ARCHITECTURES}{name}.toml") in sources:
        names.insert(0, name)
        name = parse_toml(sources[path], path).get("base")
    return names


def _preset_lines(path: str, text: str) -> int:
    """The lines of code in [presets.*] tables: sizes, which are data."""
    inside, found = False, 0
    for number in code_lines(path, text):
        line = text.splitlines()[number - 1].strip()
        inside = line.startswith("[presets") if line.startswith("[") else inside
        found += inside
    return found


def _selected(path: str, text: str) -> list[str]:
    """The fragments that a TOML file names: for all layers, for a kind of them, for a target, or for a checkpoint."""
    data = parse_toml(text, path)
    rules = data.get("structure", []) if path != PACKAGE else []  # what rules for all families select is nobody's own
    tables = [data, *(rule for rule in rules if isinstance(rule, dict))]
    parts = [*tables, *(part for table in tables for part in _tables_in(table, "kinds")), *_tables_in(data, "targets")]
    lists = [part.get("fragments", []) for part in parts]
    named = [name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)]
    return list(dict.fromkeys(named))


def _tables_in(data: dict, key: str) -> list[dict]:
    tables = data.get(key, {})
    return [table for table in tables.values() if isinstance(table, dict)] if isinstance(tables, dict) else []


def _restated(sources: dict[str, str]) -> dict:
    fragments = {path: text for path, text in sources.items() if path.startswith("fragments/") and path.endswith(".py")}
    lines, found = clones(fragments)
    return {"lines": lines, "clones": [clone._asdict() for clone in found]}


def _feature_rows(
    project: Project, sources: dict[str, str], kept: list[Combination], names: Sequence[str]
) -> list[dict]:
    rows = []
    for name in names:
        path = f"fragments/{name}.py"
        if path not in sources:
            known = [p.removeprefix("fragments/").removesuffix(".py") for p in sources if p.startswith("fragments/")]
            raise LoomError(f"unknown fragment {name!r}", remedy=nearest(name, known))
        rows.append({"fragment": name, "code": count(path, sources[path]).code, **reach(project, name, kept)._asdict()})
    return rows
