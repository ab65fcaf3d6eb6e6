"""Packages that people own: gen made them, people edit them, and no build touches them any more."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from generator.commands.packages import Asked
from generator.disk.built import BASE, MappedPackage, base_texts, dump_base, find_package
from generator.disk.lock import Combination, Fingerprints
from generator.disk.look import kind_of, read_text, show
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.write import replace_file, write_uncommitted
from generator.errors import LoomError

HEAD = "# The packages that are kept. by_hand: people edit it, and gen update takes in what the fragments bring.\n"


def kept(project: Project, word: str) -> MappedPackage:
    """A package of this project that is built, by its name or folder."""
    built = find_package(project, word)
    place = project.generated / built.name
    if not place.is_dir() or not built.folder.samefile(place) or built.lock.combination not in project.packages():
        remedy = f"Name one of {show(project.generated)}; gen list shows them."
        raise LoomError("is not a package that is kept in this project", built.shown, remedy)
    return MappedPackage(place, built.lock)


def own(project: Project, word: str) -> str:
    """Declares a package to be edited by hand from now on.

    Returns:
        What is told.
    """
    built = kept(project, word)
    combination = built.lock.combination
    if combination in project.by_hand():
        return f"{built.shown}: is owned already"
    asked = Asked(project, combination, Fingerprints(project.roots), project.generated)
    texts = base_texts(built.folder, built.lock, lambda: asked.package().files)
    path = project.generated / PACKAGES
    text = _declared(_listed_text(project, path), combination, show(path))
    replace_file(built.folder, BASE, dump_base({name: text.encode() for name, text in texts.items()}))
    replace_file(project.generated, PACKAGES, text.encode())
    write_uncommitted(replace(project))  # which reads the list anew
    return (
        f"{built.shown}: yours to edit; gen build leaves it alone, and gen update {built.name} takes in what the "
        f"fragments bring\ncommit {show(path)} and {built.shown}/{BASE} with it"
    )


def start(project: Project, combination: Combination, folder: Path) -> str:
    """Makes a project of one's own: one package, to be edited by hand.

    Returns:
        What is told.
    """
    for name in (SETTINGS, PACKAGES, combination.name):
        if kind_of(folder / name):
            raise LoomError("is there already", show(folder / name), "Name a folder that has none.")
    sources = [root / name for root in project.roots for name in ("fragments", "templates", "targets")]
    for taken in (project.generated, *sources):
        if Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(taken)):
            raise LoomError(
                f"lies in {show(taken)}, where gen looks for this project's own", show(folder), "Name another."
            )
    asked = Asked(project, combination, Fingerprints(project.roots), folder)
    files = asked.woven()
    asked.build()
    replace_file(folder / combination.name, BASE, dump_base(files))
    replace_file(folder, SETTINGS, b'# gen finds the project by this file: gen check, gen update\ngenerated = "."\n')
    replace_file(folder, PACKAGES, _declared(HEAD + combination.entry, combination, PACKAGES).encode())
    return (
        f"{show(folder)}: {combination.name} is yours to edit; in {show(folder)}, gen update takes in what gen brings"
    )


def _listed_text(project: Project, path: Path) -> str:
    if kind_of(path):
        return read_text(path)
    return HEAD + "".join(combination.entry for combination in project.packages())


def _declared(text: str, combination: Combination, shown: str) -> str:
    """packages.toml with a package marked, and every other line as it is."""
    parts = re.split(r"(?m)^(?=\s*\[\[package\]\])", text)
    for number, part in enumerate(parts):
        said = dict(re.findall(r"(?m)^\s*(architecture|target)\s*=\s*[\"'](\w+)[\"']", part))
        if said == {"architecture": combination.architecture, "target": combination.target}:
            if re.search(r"(?m)^\s*by_hand\b", part):
                part = re.sub(r"(?m)^(\s*by_hand\s*=\s*)false", r"\1true", part)
            else:
                part = re.sub(r"(?m)^(\s*target\s*=.*\n?)", lambda line: f"{line[0].rstrip()}\nby_hand = true\n", part)
            part = re.sub(r"(?m)^\s*committed\s*=\s*false.*\n?", "", part)  # what people edit is committed
            return "".join([*parts[:number], part, *parts[number + 1 :]])
    remedy = f'Write by_hand = true below target = "{combination.target}" yourself.'
    raise LoomError(f"the entry of {combination.name} is not found", shown, remedy)
