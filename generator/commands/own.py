"""Packages that people own: gen made them, people edit them, and no build touches them any more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from generator.code.hunks import hunks
from generator.commands.console import NO_ONE
from generator.commands.packages import PackageBuilder
from generator.disk.built import BASE, MappedPackage, base_texts, dump_base, find_package, kept_base
from generator.disk.files import display_path, kind_of, read_plain_file, sha256
from generator.disk.git import has_marks, older_file
from generator.disk.lock import MAP, Combination, Fingerprints, read_lock
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.write import replace_file, write_uncommitted
from generator.errors import LoomError

HEAD = "# The packages that are kept. by_hand: people edit it, and gen update takes in what the fragments bring.\n"


@click.command("own", **NO_ONE)
@click.argument("package", metavar="PACKAGE")
def command(package: str) -> None:
    """Declare that a package is edited by hand from now on.

    Writes by_hand = true to packages.toml: gen check then counts the lines that were changed and does not fail, and gen
    build leaves the package alone. The text that was woven stays in gen.base, for gen update to merge with.
    """
    click.echo(own(Project.find(), package))


def find_kept(project: Project, word: str) -> MappedPackage:
    """Finds a package of this project that is built, by its name or folder."""
    built = find_package(project, word)
    place = project.generated / built.name
    if not place.is_dir() or not built.folder.samefile(place) or built.lock.combination not in project.packages():
        remedy = f"Name one of {display_path(project.generated)}; gen list shows them."
        raise LoomError("is not a package that is kept in this project", built.shown, remedy)
    return MappedPackage(place, built.lock)


def own(project: Project, word: str) -> str:
    """Declares a package to be edited by hand from now on.

    Returns:
        The text that a person reads.
    """
    built = find_kept(project, word)
    combination = built.lock.combination
    if combination in project.by_hand():
        return f"{built.shown}: is owned already"
    builder = PackageBuilder(project, combination, Fingerprints(project.roots), project.generated)
    texts = base_texts(built.folder, built.lock, lambda: builder.package().files)
    path = project.generated / PACKAGES
    listed = read_plain_file(path) if kind_of(path) else HEAD + "".join(each.entry for each in project.packages())
    text = _declare(listed, combination, display_path(path))
    replace_file(built.folder, BASE, dump_base({name: text.encode() for name, text in texts.items()}))
    replace_file(project.generated, PACKAGES, text.encode())
    write_uncommitted(replace(project))  # which reads the list anew
    return (
        f"{built.shown}: yours to edit; gen build leaves it alone, and gen update {built.name} takes in what the "
        f"fragments bring\ncommit {display_path(path)} and {built.shown}/{BASE} with it"
    )


def start(project: Project, combination: Combination, folder: Path) -> str:
    """Makes a project of one's own: one package, to be edited by hand.

    Returns:
        The text that a person reads.
    """
    for name in (SETTINGS, PACKAGES, combination.name):
        if kind_of(folder / name):
            raise LoomError("is there already", display_path(folder / name), "Name a folder that has none.")
    sources = [root / name for root in project.roots for name in ("fragments", "templates", "targets")]
    for taken in (project.generated, *sources):
        if Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(taken)):
            raise LoomError(
                f"lies in {display_path(taken)}, where gen looks for this project's own",
                display_path(folder),
                "Name another.",
            )
    builder = PackageBuilder(project, combination, Fingerprints(project.roots), folder)
    files = builder.woven()
    builder.build()
    replace_file(folder / combination.name, BASE, dump_base(files))
    replace_file(folder, SETTINGS, b'# gen finds the project by this file: gen check, gen update\ngenerated = "."\n')
    replace_file(folder, PACKAGES, _declare(HEAD + combination.entry, combination, PACKAGES).encode())
    shown = display_path(folder)
    return f"{shown}: {combination.name} is yours to edit; in {shown}, gen update takes in what gen brings"


def _declare(text: str, combination: Combination, shown: str) -> str:
    """Marks a package in packages.toml, with every other line as it is."""
    parts = re.split(r"(?m)^(?=\s*\[\[package\]\])", text)
    builder = {"architecture": combination.architecture, "target": combination.target}
    for number, part in enumerate(parts):
        if dict(re.findall(r"(?m)^\s*(architecture|target)\s*=\s*[\"'](\w+)[\"']", part)) == builder:
            # committed: what people edit is committed
            part = re.sub(r"(?m)^\s*(by_hand|committed)\s*=\s*false.*\n?", "", part)
            part = re.sub(r"(?m)^(\s*target\s*=.*\n?)", lambda line: f"{line[0].rstrip()}\nby_hand = true\n", part)
            return "".join([*parts[:number], part, *parts[number + 1 :]])
    remedy = f'Write by_hand = true below target = "{combination.target}" yourself.'
    raise LoomError(f"the entry of {combination.name} is not found", shown, remedy)


def count_changes(folder: Path, combination: Combination) -> tuple[int, int]:
    """Counts the lines of an owned package that are not as they were woven, and the files that have them."""
    lock, base, lines, files = read_lock(folder, combination), kept_base(folder), 0, 0
    for path in lock.outputs.keys() - {MAP}:
        data = (folder / path).read_bytes() if kind_of(folder / path) == "file" else b""
        if sha256(data) == lock.outputs[path]:
            continue
        woven = base.get(path) or older_file(folder, path, lock.outputs[path]) or ""
        found = hunks(woven.split("\n"), data.decode(errors="replace").split("\n"))
        lines, files = lines + sum(max(len(hunk.before), len(hunk.after)) for hunk in found), files + bool(found)
    return lines, files


def find_conflicts(folder: Path, combination: Combination) -> Iterator[tuple[str, int]]:
    """Finds files of an owned package in which a merge left conflicts, each with the line of the first."""
    for path in sorted(read_lock(folder, combination).outputs.keys() - {MAP}):
        if kind_of(folder / path) == "file":
            if line := has_marks((folder / path).read_bytes().decode(errors="replace")):
                yield path, line
