"""Prints where lines came from, and where a fragment's lines went."""

from __future__ import annotations

from dataclasses import asdict

import click

from generator.commands.citation import title_and_citation
from generator.commands.cli import write_json
from generator.commands.explain import Explained, Stretch, explain_file, explain_fragment, find_fragment
from generator.commands.mapped import built_packages
from generator.commands.project import Project


def file(project: Project, place: str, as_json: bool) -> None:
    """Prints the sources of a file or of one of its lines.

    Raises:
        LoomError: there is no such file or line, or it has no line map.
    """
    explained = explain_file(project, place)
    if as_json:
        stretches = [stretch._asdict() for stretch in explained.stretches]
        write_json({**explained._asdict(), "stretches": stretches})
        return
    if explained.edited:
        click.echo(f"note: {explained.path} was edited since it was built; lines may be off", err=True)
    for text in _texts(explained):
        click.echo(text)


def _texts(explained: Explained) -> list[str]:
    if not explained.stretches:
        return ["this line was written since the file was built"]
    if explained.stretches[0].text or len(explained.stretches) == 1:
        return [_one(stretch) for stretch in explained.stretches]
    width = max(len(_range(stretch.first, stretch.last)) for stretch in explained.stretches)
    lines = []
    for s in explained.stretches:
        source = f"{s.source}:{_range(s.source_first, s.source_last)}"
        lines.append(f"{_range(s.first, s.last):>{width}}  {source}{f'  {s.title}' if s.title else ''}")
    cited = {s.source: s.citation for s in explained.stretches if s.citation}
    return lines + ([""] if cited else []) + [f"{source}: {citation}" for source, citation in cited.items()]


def _one(stretch: Stretch) -> str:
    lines = [f"{stretch.source}:{_range(stretch.source_first, stretch.source_last)}"]
    lines += [f"  {stretch.text}"] if stretch.text else []
    lines += [f"  feature: {stretch.title}"] if stretch.title else []
    lines += [f"  source:  {stretch.citation}"] if stretch.citation else []
    return "\n".join(lines)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def fragment(project: Project, word: str, as_json: bool) -> None:
    """Prints a fragment's lines as they stand in the packages.

    Raises:
        LoomError: there is no such fragment, or no package.
    """
    source = find_fragment(project, word)
    places = explain_fragment(built_packages(project), source)
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
