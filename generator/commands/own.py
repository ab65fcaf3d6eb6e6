"""`gen own`: makes a package one that people edit, and that builds leave alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from generator.commands.console import NO_ONE
from generator.commands.packages import create_builder
from generator.disk.built import BASE, MappedPackage, find_base_texts, find_package, format_base
from generator.disk.files import display_path, kind_of, read_plain_file
from generator.disk.lock import Combination
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.write import replace_file, update_uncommitted_records
from generator.errors import LoomError

HEAD = "# The packages that are kept. by_hand: people edit it, and gen update takes in what the fragments bring.\n"


@click.command("own", **NO_ONE)
@click.argument("package", metavar="PACKAGE")
def command(package: str) -> None:
    """Declare that a package is edited by hand from now on.

    Writes by_hand = true to packages.toml: gen check then counts the lines that were changed and does not fail, and gen
    build leaves the package alone. The text of the last build is kept in gen.base, for gen update to merge with.
    """
    click.echo(own_package(Project.find(), package))


def find_listed_package(project: Project, word: str) -> MappedPackage:
    """Finds a built package of this project, by its name or its folder."""
    built = find_package(project, word)
    folder = project.generated / built.name
    if not folder.is_dir() or not built.folder.samefile(folder) or built.lock.combination not in project.packages():
        remedy = f"Name one of {display_path(project.generated)}; gen list shows them."
        raise LoomError("is not a package of this project", built.label, remedy)
    return MappedPackage(folder, built.lock)


def own_package(project: Project, word: str) -> str:
    """Declares that a package is edited by hand; returns a message."""
    built = find_listed_package(project, word)
    combination = built.lock.combination
    if combination in project.listing.owned:
        return f"{built.label}: is owned already"
    builder = create_builder(project, combination)
    texts = find_base_texts(built.folder, built.lock, lambda: builder.weave().files)
    path = project.generated / PACKAGES
    listed = read_plain_file(path) if kind_of(path) else HEAD + "".join(each.entry for each in project.packages())
    text = _mark_owned(listed, combination, display_path(path))
    replace_file(built.folder, BASE, format_base({name: text.encode() for name, text in texts.items()}))
    replace_file(project.generated, PACKAGES, text.encode())
    update_uncommitted_records(replace(project))  # a copy reads packages.toml again
    return (
        f"{built.label}: yours to edit; gen build leaves it alone, and gen update {built.name} takes in what the "
        f"fragments bring\ncommit {display_path(path)} and {built.label}/{BASE} with it"
    )


def start_project(project: Project, combination: Combination, folder: Path) -> str:
    """Creates a project with one package, which is edited by hand; returns a message."""
    for name in (SETTINGS, PACKAGES, combination.name):
        if kind_of(folder / name):
            raise LoomError("already exists", display_path(folder / name), "Name a folder that has none.")
    sources = [root / name for root in project.roots for name in ("fragments", "templates", "targets")]
    for used in (project.generated, *sources):
        if Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(used)):
            message = f"lies in {display_path(used)}, where gen looks for this project's own"
            raise LoomError(message, display_path(folder), "Name another.")
    builder = create_builder(project, combination, folder)
    files = builder.weave_files()
    builder.build()
    replace_file(folder / combination.name, BASE, format_base(files))
    replace_file(folder, SETTINGS, b'# gen finds the project by this file: gen check, gen update\ngenerated = "."\n')
    replace_file(folder, PACKAGES, _mark_owned(HEAD + combination.entry, combination, PACKAGES).encode())
    label = display_path(folder)
    return f"{label}: {combination.name} is yours to edit; in {label}, gen update takes in what gen brings"


def _mark_owned(text: str, combination: Combination, label: str) -> str:
    """Sets by_hand = true in the entry of a package in packages.toml."""
    import tomlkit  # imported late, as build has this module too
    from tomlkit.exceptions import TOMLKitError

    from generator.recipe.toml_edits import set_value

    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        remedy = f'Write by_hand = true below target = "{combination.target}" yourself.'
        raise LoomError(f"gen cannot change this file: {error}", label, remedy) from None
    for entry in document.get("package", []):
        if (entry["architecture"], entry["target"]) == (combination.architecture, combination.target):
            entry.pop("committed", None)  # an edited package has to be committed
            set_value(entry, "by_hand", True)
    return tomlkit.dumps(document)
