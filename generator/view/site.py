"""Makes the pages of the site from what was gathered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from generator import __version__
from generator.view.content import Content, Source, Version
from generator.view.highlight import highlight

_HERE = Path(__file__).parent
_ASSETS = ("style.css", "common.js", "code.js", "compare.js", "search.js")


def make_site(content: Content, report: dict, tables: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """The path and the text of each file of the site.

    Args:
        report: what `gen loc` counts.
        tables: the same as tables, with a title, heads, rows and a note.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["url"] = quote
    counts, places = content.counts(), content.places()
    environment.globals.update(
        content=content, counts=counts, places=places, report=report, version=__version__, is_total=is_total
    )

    def page(path: str, template: str, **values: object) -> tuple[str, str]:
        return path, environment.get_template(template).render(root="../" * path.count("/"), **values)

    for name in _ASSETS:
        yield name, (_HERE / "assets" / name).read_text(encoding="utf-8")
    yield "site.js", _script("site", _index(content))
    lines, files = _contents(content)
    yield "lines.js", _script("lines", lines)
    yield "files.js", _script("files", files)
    yield page("index.html", "index.html", matrix=_matrix(content, counts), unbuilt=_unbuilt(content))
    yield page("compare.html", "compare.html")
    yield page("search.html", "search.html")
    yield page("modularity.html", "modularity.html", tables=[_plot(table) for table in tables])
    for package in content.packages:
        yield page(f"package/{package.name}.html", "package.html", package=package, files=content.files[package.name])
    for source in content.sources.values():
        shown = highlight(source.path, source.text.splitlines())
        yield page(f"source/{source.name}.html", "source.html", source=source, lines=[Markup(line) for line in shown])
    for version in content.versions:
        shown = highlight(version.path, version.lines)
        stretches = [
            (content.sources.get(source), first, Markup("".join(f"<li>{line}\n" for line in shown[first - 1 : last])))
            for source, first, last in version.stretches()
        ]
        path = f"code/{version.path}/{version.first}.html"
        yield page(path, "code.html", file=version, stretches=stretches, data=_line_data(content, version))


def _script(name: str, value: object) -> str:
    """Data as a script, for pages that are opened as files may not read any other."""
    return f"(window.LOOM = window.LOOM || {{}}).{name} = {json.dumps(value, separators=(',', ':'))};\n"


def _index(content: Content) -> dict:
    """What scripts know of packages, sources and files; a file is the number of the package that names its page."""
    numbers = {name: number for number, name in enumerate(content.names)}
    paths = sorted({version.path for version in content.versions})
    files = [[content.files[name].get(path) for name in content.names] for path in paths]
    return {
        "packages": content.names,
        "architectures": [content.sources[content.architectures[name]].number for name in content.names],
        "sources": [[s.path, s.name, s.title, s.citation, s.hue] for s in content.sources.values()],
        "files": {
            path: [numbers[version.first] if version else -1 for version in row]
            for path, row in zip(paths, files, strict=True)
        },
    }


def _contents(content: Content) -> tuple[list[list], dict[str, dict[str, dict]]]:
    """Every line once, as its text and its origins; and each file as runs of these: the first and how many.

    A file also has the lines that are other in a package than in the first that has it.
    """
    known: dict[tuple, int] = {}
    files: dict[str, dict[str, dict]] = {}
    numbers = {path: source.number for path, source in content.sources.items()}
    for version in content.versions:
        runs: list[int] = []
        for text, segments in zip(version.lines, version.segments, strict=True):
            number = known.setdefault((text, tuple(origin for _, origin in segments)), len(known))
            if runs and runs[-2] + runs[-1] == number:
                runs[-1] += 1
            else:
                runs += number, 1
        own = {name: lines for name, lines in version.own.items() if lines}
        files.setdefault(version.path, {})[version.first] = {"runs": runs, "own": own}
    lines = [[text, *(n for origin in origins for n in (numbers[origin.path], origin.line))] for text, origins in known]
    return lines, files


def _line_data(content: Content, version: Version) -> dict:
    """What a page tells of its lines.

    `from` has the first line of each run whose source lines follow each other and the first of those; `in` that of
    each run that the same packages have and the number of these in `sets`, which has them as hexadecimal bits; `more`
    all origins of lines that have several: column, source, line; `own` the lines that are other in a package.
    """
    came: list[list[int]] = []
    shared: list[list[int]] = []
    sets: dict[int, int] = {}
    more: dict[int, list[list[int]]] = {}
    line, bits = -1, -1
    for number, (segments, others) in enumerate(zip(version.segments, version.others, strict=True), 1):
        # 0 stands for a template as a whole, so that it is followed by itself
        expected, line = line + 1 if line else 0, segments[0][1].line if segments else 0
        if number == 1 or line != expected:
            came.append([number, line])
        if others != bits:
            bits = others
            shared.append([number, sets.setdefault(bits, len(sets))])
        if len(segments) > 1:
            more[number] = [[column, content.sources[o.path].number, o.line] for column, o in segments]
    return {
        "path": version.path,
        "page": version.first,
        "from": came,
        "in": shared,
        "sets": [f"{bits:x}" for bits in sets],
        "more": more,
        "own": {name: lines for name, lines in version.own.items() if lines},
    }


def _matrix(content: Content, counts: dict[str, dict[str, int]]) -> list[tuple[str, list[Source]]]:
    """The fragments in groups: those that tell packages apart, by folder, and those that every package has."""
    groups: dict[str, list[Source]] = {}
    everywhere: list[Source] = []
    for source in content.sources.values():
        having = counts.get(source.path)
        if having and source.is_fragment:
            group = groups.setdefault(source.name.split("/")[0], [])
            (everywhere if len(having) == len(content.names) else group).append(source)
    return [*((name, group) for name, group in groups.items() if group), ("in every package", everywhere)]


def _unbuilt(content: Content) -> list[str]:
    """The architectures that no package is of."""
    paths = [path for path in content.sources if path.startswith("templates/architectures/")]
    return [Path(path).stem for path in paths if path not in content.architectures.values()]


def _plot(table: Any) -> tuple[Any, int, float]:
    """A table, the column that its bars show, and the largest number there that is no total."""
    heads = ("makes", "code", "lines")
    column = next((table.heads.index(head) for head in heads if head in table.heads), 0)
    rows = table.rows
    if column and table.heads[column] == "makes":
        rows = sorted(rows, key=lambda row: -row[column])
    return table._replace(rows=rows), column, max((row[column] for row in rows if not is_total(row)), default=0)


def is_total(row: tuple) -> bool:
    """Whether a row sums others, so that its bar would dwarf theirs."""
    return str(row[0]).startswith("total")
