"""Renders the pages of the site."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from generator import __version__
from generator.view.content import Content, SourceFile
from generator.view.highlight import highlight

_HERE = Path(__file__).parent
_ASSETS = ("style.css", "common.js", "code.js", "compare.js", "search.js")


def make_site(content: Content, tables: Iterable[Any], locked: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each file of the site.

    Args:
        tables: of `gen loc`, each with a title, heads, rows and a note.
        locked: listed packages without files, which the site does not show.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["url"] = quote
    counts = content.counts()
    environment.globals.update(content=content, counts=counts, stretches=content.stretches(), version=__version__)

    def page(path: str, template: str, **values: object) -> tuple[str, str]:
        return path, environment.get_template(template).render(root="../" * path.count("/"), **values)

    for name in _ASSETS:
        yield name, (_HERE / "assets" / name).read_text(encoding="utf-8")
    yield "site.js", _as_script("site", _site_index(content))
    lines, files = _lines_and_files(content)
    yield "lines.js", _as_script("lines", lines)
    yield "files.js", _as_script("files", files)
    matrix = _group_fragments(content, counts)
    yield page("index.html", "index.html", matrix=matrix, unbuilt=_unbuilt(content), locked=locked)
    yield page("compare.html", "compare.html")
    yield page("search.html", "search.html")
    yield page("modularity.html", "modularity.html", tables=tables)
    for package in content.packages:
        yield page(f"package/{package.name}.html", "package.html", package=package, files=content.files[package.name])
    for source in content.sources.values():
        code = highlight(source.path, source.text.splitlines())
        yield page(f"source/{source.name}.html", "source.html", source=source, lines=[Markup(line) for line in code])
    for version in content.versions:
        code = highlight(version.path, version.lines)
        blocks = [
            (content.sources.get(source), first, Markup("".join(f"<li>{line}\n" for line in code[first - 1 : last])))
            for source, first, last in version.stretches()
        ]
        yield page(f"code/{version.path}/{version.first}.html", "code.html", file=version, blocks=blocks)


def _as_script(name: str, value: object) -> str:
    """Returns data as a script: pages that are opened as files may read nothing else."""
    return f"(window.LOOM = window.LOOM || {{}}).{name} = {json.dumps(value, separators=(',', ':'))};\n"


def _site_index(content: Content) -> dict:
    """Returns the packages, sources and files for scripts.

    A file has for each package the number of the package that names its page; -1 if the package does not have it.
    """
    paths = sorted({version.path for version in content.versions})
    files = {path: [content.files[name].get(path) for name in content.names] for path in paths}
    return {
        "packages": content.names,
        "architectures": [content.sources[content.architectures[name]].number for name in content.names],
        "sources": [[s.path, s.name, s.title, s.citation, s.hue] for s in content.sources.values()],
        "files": {
            path: [content.names.index(version.first) if version else -1 for version in row]
            for path, row in files.items()
        },
    }


def _lines_and_files(content: Content) -> tuple[list[list], dict[str, dict[str, dict]]]:
    """Returns all distinct lines, and the files that consist of them.

    A line has its text, and column, source and line of each origin. A file has runs of lines, each the first one and
    the length, and for each package the lines that differ from those of the first package.
    """
    known: dict[tuple, int] = {}
    files: dict[str, dict[str, dict]] = {}
    for version in content.versions:
        runs: list[int] = []
        for text, segments in zip(version.lines, version.segments, strict=True):
            number = known.setdefault((text, *segments), len(known))
            if runs and runs[-2] + runs[-1] == number:
                runs[-1] += 1
            else:
                runs += number, 1
        own = {name: lines for name, lines in version.own.items() if lines}
        files.setdefault(version.path, {})[version.first] = {"runs": runs, "own": own}
    lines = []
    for text, *segments in known:
        parts = ((column, content.sources[origin.path].number, origin.line) for column, origin in segments)
        lines.append([text, *(number for part in parts for number in part)])
    return lines, files


def _group_fragments(content: Content, counts: dict[str, dict[str, int]]) -> list[tuple[str, list[SourceFile]]]:
    """Groups the fragments for the matrix: by folder, and those that every package has."""
    groups: dict[str, list[SourceFile]] = {}
    everywhere: list[SourceFile] = []
    for source in content.sources.values():
        if source.is_fragment and (packages := counts.get(source.path)):
            group = groups.setdefault(source.name.split("/")[0], [])
            (everywhere if len(packages) == len(content.names) else group).append(source)
    return [*groups.items(), ("in every package", everywhere)]


def _unbuilt(content: Content) -> list[str]:
    """Returns the architectures of which there is no package."""
    paths = [path for path in content.sources if path.startswith("templates/architectures/")]
    return [PurePosixPath(path).stem for path in paths if path not in content.architectures.values()]
