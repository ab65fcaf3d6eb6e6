"""`gen explain`: where a generated line came from, and where a fragment's lines went."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from generator.commands.citation import title_and_citation
from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.disk.built import MappedPackage, Segments, built_packages, is_locked
from generator.disk.files import display_path
from generator.disk.lock import LOCK
from generator.disk.project import Project
from generator.errors import LoomError, nearest

CONTEXT = 2


class Segment(NamedTuple):
    """Generated text and its source; line numbers count from 1.

    Attributes:
        first, last: the generated lines.
        text: the generated text, where the stretch is on one line.
        source, source_first, source_last: where it was copied from.
        title, citation: what the source says about itself.
    """

    first: int
    last: int
    text: str
    source: str
    source_first: int
    source_last: int
    title: str
    citation: str


@dataclass
class FragmentLines:
    """Where lines of a fragment stand, the same in one or more packages.

    Attributes:
        path: in the package.
        lines: the lines with their context, and whether the fragment has a part in each.
        at: `path:line` of the first of its lines, for each package.
    """

    path: str
    lines: list[tuple[bool, str]]
    at: list[str] = field(default_factory=list)


@click.command("explain", **NO_ONE)
@click.argument("place", metavar="[FILE[:LINE]]", required=False)
@click.option("--fragment", metavar="NAME", help="Show where the lines of this fragment stand in the packages.")
@AS_JSON
def command(place: str | None, fragment: str | None, as_json: bool) -> None:
    """Say which fragment a generated line came from.

    FILE:LINE gives the fragment, its line, the feature's title and its citation; FILE alone gives them for all lines.
    """
    if place and fragment:
        raise LoomError("explain takes a file or --fragment, not both", remedy="Leave one of the two out.")
    if not place and not fragment:
        raise LoomError("explain needs a file or --fragment", remedy="Write gen explain FILE:LINE.")
    if place:
        _explain_file(Project.find(), place, as_json)
    elif fragment:
        _explain_fragment(Project.find(), fragment, as_json)


def _explain_file(project: Project, word: str, as_json: bool) -> None:
    """Prints the sources of a generated file, or of one line of it.

    Args:
        word: `FILE`, `FILE:LINE` or, as editors copy it, `FILE:LINE:COLUMN`.
    """
    file, line = _split(word)
    package, path = _package_of(project, file)
    lines, origins = package.lines(path), package.origins_of(path)
    shown = f"{package.shown}/{path}"
    if not origins:
        remedy = f"Ask about one of {', '.join(sorted(package.origins))}; what others are made from is in {LOCK}."
        raise LoomError("has no line map: only woven Python has", shown, remedy)
    if line and line > len(lines):
        raise LoomError(f"there is no line {line}: the file has {len(lines)}", shown)
    texts, edited = project.library().files, package.edited(path)
    if line:
        stretches = line_stretches(line, lines[line - 1], origins[line - 1], texts)
    else:
        stretches = _file_stretches(origins, texts)
    if as_json:
        table = {"package": package.name, "path": path, "edited": edited}
        write_json(table | {"stretches": [stretch._asdict() for stretch in stretches]})
        return
    if edited:
        click.echo(f"note: {path} was edited since it was built; lines may be off", err=True)
    click.echo("\n".join(_line_text(stretches) if line or len(stretches) == 1 else _file_text(stretches)))


def _line_text(stretches: list[Segment]) -> Iterator[str]:
    if not stretches:
        yield "this line was written since the file was built"
    for stretch in stretches:
        yield f"{stretch.source}:{_range(stretch.source_first, stretch.source_last)}"
        for text in (stretch.text, stretch.title and f"feature: {stretch.title}"):
            if text:
                yield f"  {text}"
        if stretch.citation:
            yield f"  source:  {stretch.citation}"


def _file_text(stretches: list[Segment]) -> Iterator[str]:
    width = max(len(_range(stretch.first, stretch.last)) for stretch in stretches)
    for s in stretches:
        source = f"{s.source}:{_range(s.source_first, s.source_last)}"
        yield f"{_range(s.first, s.last):>{width}}  {source}{f'  {s.title}' if s.title else ''}"
    cited = {s.source: s.citation for s in stretches if s.citation}
    yield from [""] if cited else []
    yield from (f"{source}: {citation}" for source, citation in cited.items())


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _split(word: str) -> tuple[Path, int | None]:
    match = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", word)
    if Path(word).exists() or not match:
        return Path(word), None
    if int(match[2]) == 0:
        raise LoomError("lines count from 1", word, "Give the number of a line.")
    return Path(match[1]), int(match[2])


def _package_of(project: Project, file: Path) -> tuple[MappedPackage, str]:
    """The package that a file is in, and its path there; a bare `llama2_cpu/model.py` is looked for in generated/."""
    for candidate in (file, project.generated / file):
        place = Path(os.path.abspath(candidate))
        if place.is_file():
            for folder in place.parents:
                if (folder / LOCK).is_file():
                    return MappedPackage.read(folder), place.relative_to(folder).as_posix()
            raise LoomError(
                "is not in a package that gen built", display_path(place), f"No folder above it has a {LOCK}."
            )
    for folder in (Path(os.path.abspath(place)) for place in (*file.parents, *(project.generated / file).parents)):
        if is_locked(project, folder):
            MappedPackage.read(folder).check_there()
    message = "is a folder" if file.is_dir() or (project.generated / file).is_dir() else "there is no such file"
    raise LoomError(message, str(file), "Give the path of a file in a package, like PATH/model.py:12.")


def line_stretches(line: int, text: str, segments: Segments, texts: dict[str, str]) -> list[Segment]:
    """Each part of a line that has a source of its own."""
    starts = [column for column, _ in segments]
    ends = [*starts[1:], len(text)][: len(starts)]
    result: list[Segment] = []
    for (start, origin), end in zip(segments, ends, strict=True):
        part = text[start:end].strip()
        if part or len(segments) == 1:
            said = title_and_citation(origin.path, texts.get(origin.path, ""))
            result.append(Segment(line, line, part, origin.path, origin.line, origin.line, *said))
    return result


def _file_stretches(origins: list[Segments], texts: dict[str, str]) -> list[Segment]:
    """Runs of lines whose first character comes from the same source, going on in it or staying on a line."""
    runs: list[list] = []
    for number, segments in enumerate(origins, 1):
        if not segments:
            continue
        path, line = segments[0][1]
        last = runs[-1] if runs else None
        if last and last[1] == number - 1 and last[2] == path and last[4] <= line <= last[4] + 2:
            last[1], last[4] = number, line
        else:
            runs.append([number, number, path, line, line])
    said = {run[2]: title_and_citation(run[2], texts.get(run[2], "")) for run in runs}
    return [Segment(first, last, "", path, low, high, *said[path]) for first, last, path, low, high in runs]


def _explain_fragment(project: Project, word: str, as_json: bool) -> None:
    """Prints a fragment's lines as they stand in the packages."""
    source = _find_fragment(project, word)
    places = _find_places(built_packages(project), source)
    title, citation = title_and_citation(source, project.library().files[source])
    if as_json:
        write_json({"source": source, "title": title, "citation": citation, "places": [asdict(p) for p in places]})
        return
    click.echo(f"{source}{f': {title}' if title else ''}")
    if citation:
        click.echo(f"source: {citation}")
    for place in places:
        more = f" and {len(place.at) - 1} more: {', '.join(place.at[1:])}" if len(place.at) > 1 else ""
        click.echo(f"\n{place.at[0]}{more}")
        for own, text in place.lines:
            click.echo(f"  {'|' if own else ' '} {text}".rstrip())
    if not places:
        click.echo("no built package has a line of it")


def _find_fragment(project: Project, word: str) -> str:
    """Finds the source path of a fragment, by its name with or without its folder."""
    paths = [path for path in project.library().files if path.startswith("fragments/") and path.endswith(".py")]
    names = {path.removeprefix("fragments/").removesuffix(".py"): path for path in sorted(paths)}
    word = word.removeprefix("fragments/").removesuffix(".py")
    if word in names:
        return names[word]
    found = [name for name in names if name.rsplit("/", 1)[-1] == word]
    if len(found) > 1:
        raise LoomError(f"{len(found)} fragments are called {word}", remedy=f"Say which: {' or '.join(found)}.")
    if not found:
        short = [name.rsplit("/", 1)[-1] for name in names]
        raise LoomError(f"no fragment is called {word!r}", remedy=nearest(word, {*names, *short}))
    return names[found[0]]


def _find_places(packages: list[MappedPackage], source: str) -> list[FragmentLines]:
    """Finds where the lines of a source stand, with the lines around them; the same text in packages is one place."""
    places: dict[tuple, FragmentLines] = {}
    for package in packages:
        for path, origins in package.origins.items():
            lines = package.lines(path)
            own = [any(origin.path == source for _, origin in segments) for segments in origins[: len(lines)]]
            for low, high in _regions(own):
                shown = [(own[n] and bool(lines[n].strip()), lines[n]) for n in range(low, high)]
                place = places.setdefault((path, *shown), FragmentLines(path, shown))
                first = next(n for n in range(low, high) if own[n])
                place.at.append(f"{package.shown}/{path}:{first + 1}")
    return sorted(places.values(), key=lambda place: place.path)


def _regions(own: list[bool]) -> list[tuple[int, int]]:
    """Ranges of lines that hold all own lines and their context; ranges that touch are one."""
    regions: list[list[int]] = []
    for number in (n for n, mine in enumerate(own) if mine):
        low, high = max(number - CONTEXT, 0), min(number + CONTEXT + 1, len(own))
        if regions and low <= regions[-1][1]:
            regions[-1][1] = high
        else:
            regions.append([low, high])
    return [(low, high) for low, high in regions]
