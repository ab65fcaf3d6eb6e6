"""Parts of a package: what it can do besides training, each asked for by its name.

A part is a table of templates/package.toml, and nothing else knows of it. It lists fragments, or folders of them: who
ever selects one of these, an architecture, a target or every package, it is in the packages that have the part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.schema import PackageToml
from generator.recipe.toml import Toml

ALL = "all"


def chosen_parts(asked: Collection[str], file: Toml[PackageToml]) -> tuple[str, ...]:
    """Returns the parts asked for, "all" for every one, and those that they need, in the order of the file."""
    parts = file.data.parts
    ahead, found = [name for name in asked if name != ALL], set(parts if ALL in asked else ())
    while ahead:
        name = ahead.pop()
        if name not in parts:
            raise LoomError(f"unknown part {name!r}", None, nearest(name, [*parts, ALL]))
        if name not in found:
            found.add(name)
            ahead += parts[name].needs
    return tuple(name for name in parts if name in found)


def fragments_of(names: Iterable[str], file: Toml[PackageToml]) -> set[str]:
    """Returns the fragments and folders that some parts list."""
    return {entry for name in names for entry in file.data.parts[name].fragments}


def left_out(chosen: Collection[str], parts: Collection[str], file: Toml[PackageToml]) -> list[str]:
    """Returns the fragments that belong only to parts which a package does not have."""
    gone = fragments_of(file.data.parts.keys() - set(parts), file) - fragments_of(parts, file)
    return [name for name in chosen if name in gone or name.split("/")[0] in gone]


def check_parts(file: Toml[PackageToml], library: Library) -> None:
    """Parts list what there is, and need parts."""
    known = {*library.fragments(), *(name.split("/")[0] for name in library.fragments())}
    for name, part in file.data.parts.items():
        for key, entries, there in (("fragments", part.fragments, known), ("needs", part.needs, file.data.parts)):
            for number, entry in enumerate(entries):
                if entry not in there:
                    message = f"part {name} has {entry!r} under {key}, which is not there"
                    raise LoomError(message, str(file.origin("parts", name, key, number)), nearest(entry, there))
