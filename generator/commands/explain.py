"""`gen explain`: names the source of a generated line, and shows where the lines of a fragment are in packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from generator.commands.citation import parse_title_and_citation
from generator.commands.console import AS_JSON, NO_ONE, write_json
from generator.disk.built import MappedPackage, Segments, find_built_packages, has_lock
from generator.disk.files import display_path
from generator.disk.lock import LOCK
from generator.disk.project import Project
from generator.errors import LoomError, nearest

CONTEXT = 2


class SourceSpan(NamedTuple):
    """Generated text and its source; line numbers count from 1.

    Attributes:
        first, last: the generated lines.
        text: the generated text, if the span is part of one line.
        source, source_first, source_last: the lines that it was copied from.
        title, citation: of the source.
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
class FragmentExcerpt:
    """Lines of a fragment in a package, with their context; the same text in several packages is one excerpt.

    Attributes:
        path: in the package.
        lines: each line, and whether the fragment has a part in it.
        at: `path:line` of the first of its lines, for each package.
    """

    path: str
    lines: list[tuple[bool, str]]
    at: list[str] = field(default_factory=list)


@click.command("explain", **NO_ONE)
@click.argument("place", metavar="[FILE[:LINE]]", required=False)
@click.option("--fragment", metavar="NAME", help="Show the lines of this fragment in the packages.")
@AS_JSON
def command(place: str | None, fragment: str | None, as_json: bool) -> None:
    """Say which fragment a generated line came from.

    FILE:LINE gives the fragment, its line, the feature's title and its citation; FILE alone gives them for all lines.
    """
    if place and fragment:
        raise LoomError("explain takes a file or --fragment, not both", remedy="Leave one of the two out.")
    if place:
        _explain_file(Project.find(), place, as_json)
    elif fragment:
        _explain_fragment(Project.find(), fragment, as_json)
    else:
        raise LoomError("explain needs a file or --fragment", remedy="Write gen explain FILE:LINE.")


def _explain_file(project: Project, word: str, as_json: bool) -> None:
    """Prints the sources of a generated file, or of one line of it.

    Args:
        word: `FILE`, `FILE:LINE` or, as editors copy it, `FILE:LINE:COLUMN`.
    """
    file, line = _parse_place(word)
    package, path = _find_package_file(project, file)
    lines, origins = package.read_lines(path), package.line_origins(path)
    label = f"{package.label}/{path}"
    if not origins:
        remedy = f"Ask about one of {', '.join(sorted(package.origins))}; what others are made from is in {LOCK}."
        raise LoomError("has no line map: only woven Python has", label, remedy)
    if line and line > len(lines):
        raise LoomError(f"there is no line {line}: the file has {len(lines)}", label)
    texts, is_edited = project.library().files, package.is_edited(path)
    spans = split_line(line, lines[line - 1], origins[line - 1], texts) if line else _group_lines(origins, texts)
    if as_json:
        stretches = [span._asdict() for span in spans]
        write_json({"package": package.name, "path": path, "edited": is_edited, "stretches": stretches})
        return
    if is_edited:
        click.echo(f"note: {path} was edited since it was built; lines may be off", err=True)
    click.echo("\n".join(_format_line(spans) if line or len(spans) == 1 else _format_file(spans)))


def _format_line(spans: list[SourceSpan]) -> Iterator[str]:
    if not spans:
        yield "this line was written since the file was built"
    for span in spans:
        yield f"{span.source}:{_format_range(span.source_first, span.source_last)}"
        title, citation = span.title and f"feature: {span.title}", span.citation and f"source:  {span.citation}"
        yield from (f"  {text}" for text in (span.text, title, citation) if text)


def _format_file(spans: list[SourceSpan]) -> Iterator[str]:
    width = max(len(_format_range(span.first, span.last)) for span in spans)
    for span in spans:
        source = f"{span.source}:{_format_range(span.source_first, span.source_last)}"
        yield f"{_format_range(span.first, span.last):>{width}}  {source}  {span.title}".rstrip()
    citations = {span.source: span.citation for span in spans if span.citation}
    yield from [""] if citations else []
    yield from (f"{source}: {citation}" for source, citation in citations.items())


def _format_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _parse_place(word: str) -> tuple[Path, int | None]:
    match = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", word)
    if Path(word).exists() or not match:
        return Path(word), None
    if int(match[2]) == 0:
        raise LoomError("lines count from 1", word, "Give the number of a line.")
    return Path(match[1]), int(match[2])


def _find_package_file(project: Project, file: Path) -> tuple[MappedPackage, str]:
    """Finds the package that has a file, and the path in it; looks in the output folder too."""
    candidates = [Path(os.path.abspath(candidate)) for candidate in (file, project.generated / file)]
    for place in candidates:
        if place.is_file():
            for folder in place.parents:
                if (folder / LOCK).is_file():
                    return MappedPackage.read(folder), place.relative_to(folder).as_posix()
            remedy = f"No folder above it has a {LOCK}."
            raise LoomError("is not in a package that gen built", display_path(place), remedy)
    for folder in (parent for place in candidates for parent in place.parents):
        if has_lock(project, folder):
            MappedPackage.read(folder).require_files()
    message = "is a folder" if any(place.is_dir() for place in candidates) else "there is no such file"
    raise LoomError(message, str(file), "Give the path of a file in a package, like PATH/model.py:12.")


def split_line(line: int, text: str, segments: Segments, texts: dict[str, str]) -> list[SourceSpan]:
    """Splits a line into the parts that have a source of their own."""
    starts = [column for column, _ in segments]
    ends = [*starts[1:], len(text)][: len(starts)]
    spans: list[SourceSpan] = []
    for (start, origin), end in zip(segments, ends, strict=True):
        part = text[start:end].strip()
        if part or len(segments) == 1:
            about = parse_title_and_citation(origin.path, texts.get(origin.path, ""))
            spans.append(SourceSpan(line, line, part, origin.path, origin.line, origin.line, *about))
    return spans


def _group_lines(origins: list[Segments], texts: dict[str, str]) -> list[SourceSpan]:
    """Groups consecutive lines whose first characters come from consecutive lines of one source, or from the same."""
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
    about = {run[2]: parse_title_and_citation(run[2], texts.get(run[2], "")) for run in runs}
    return [SourceSpan(first, last, "", path, low, high, *about[path]) for first, last, path, low, high in runs]


def _explain_fragment(project: Project, word: str, as_json: bool) -> None:
    """Prints the lines of a fragment in the packages."""
    source = _find_fragment(project, word)
    excerpts = _find_excerpts(find_built_packages(project), source)
    title, citation = parse_title_and_citation(source, project.library().files[source])
    if as_json:
        places = [asdict(excerpt) for excerpt in excerpts]
        write_json({"source": source, "title": title, "citation": citation, "places": places})
        return
    click.echo(f"{source}{f': {title}' if title else ''}")
    if citation:
        click.echo(f"source: {citation}")
    for excerpt in excerpts:
        more = f" and {len(excerpt.at) - 1} more: {', '.join(excerpt.at[1:])}" if len(excerpt.at) > 1 else ""
        click.echo(f"\n{excerpt.at[0]}{more}")
        for is_own, text in excerpt.lines:
            click.echo(f"  {'|' if is_own else ' '} {text}".rstrip())
    if not excerpts:
        click.echo("no built package has a line of it")


def _find_fragment(project: Project, word: str) -> str:
    """Finds the path of a fragment, by its name with or without its folder."""
    paths = [path for path in project.library().files if path.startswith("fragments/") and path.endswith(".py")]
    names = {path.removeprefix("fragments/").removesuffix(".py"): path for path in sorted(paths)}
    word = word.removeprefix("fragments/").removesuffix(".py")
    matches = [word] if word in names else [name for name in names if name.rsplit("/", 1)[-1] == word]
    if len(matches) > 1:
        raise LoomError(f"{len(matches)} fragments are called {word}", remedy=f"Say which: {' or '.join(matches)}.")
    if not matches:
        short_names = [name.rsplit("/", 1)[-1] for name in names]
        raise LoomError(f"no fragment is called {word!r}", remedy=nearest(word, {*names, *short_names}))
    return names[matches[0]]


def _find_excerpts(packages: list[MappedPackage], source: str) -> list[FragmentExcerpt]:
    """Finds the excerpts of packages that have lines of a source."""
    excerpts: dict[tuple, FragmentExcerpt] = {}
    for package in packages:
        for path, origins in package.origins.items():
            lines = package.read_lines(path)
            is_own = [any(origin.path == source for _, origin in segments) for segments in origins[: len(lines)]]
            for low, high in _find_regions(is_own):
                marked = [(is_own[n] and bool(lines[n].strip()), lines[n]) for n in range(low, high)]
                excerpt = excerpts.setdefault((path, *marked), FragmentExcerpt(path, marked))
                excerpt.at.append(f"{package.label}/{path}:{is_own.index(True, low) + 1}")
    return sorted(excerpts.values(), key=lambda excerpt: excerpt.path)


def _find_regions(is_own: list[bool]) -> list[tuple[int, int]]:
    """Finds the ranges of the own lines with their context; merges ranges that touch."""
    regions: list[tuple[int, int]] = []
    for number in (number for number, own in enumerate(is_own) if own):
        low, high = max(number - CONTEXT, 0), min(number + CONTEXT + 1, len(is_own))
        if regions and low <= regions[-1][1]:
            low = regions.pop()[0]
        regions.append((low, high))
    return regions
