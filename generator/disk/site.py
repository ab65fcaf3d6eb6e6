"""Writes a folder of pages, and never over what gen did not make.

The folder holds a list of its files, and only a folder with that list, or an empty one, is written to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from generator.disk.look import check_inside, kind_of, read_text, show
from generator.errors import LoomError

LIST = ".gen-view"
_ABOUT = "# The files of a site that gen view made: it overwrites these, and removes those that it makes no more.\n"


def write_site(folder: Path, files: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Writes each file, and removes those of an earlier site that are no more.

    Args:
        files: path in the folder -> text.

    Returns:
        How many files there are, and how many bytes.
    """
    before = check_site(folder)
    made: dict[str, bytes] = {path: text.encode() for path, text in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # first, so that a site that was cut short is known as one
        (folder / LIST).write_text(_listed(before | made.keys()), encoding="utf-8")
        for path, data in made.items():
            _check_way(folder, path, path in before)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        for path in before - made.keys():
            if kind_of(folder / path) == "file":
                (folder / path).unlink()
        (folder / LIST).write_text(_listed(made.keys()), encoding="utf-8")
    except OSError as error:
        where = show(Path(error.filename or folder))
        remedy = "Free some space, make the folder writable, or name another with --out."
        raise LoomError(f"cannot be written: {error.strerror}", where, remedy) from None
    return len(made), sum(map(len, made.values()))


def check_site(folder: Path) -> set[str]:
    """The files of the site in a folder, none where it is empty or missing; an error where it is anything else."""
    if (folder / LIST).is_file():
        paths = set(read_text(folder / LIST).removeprefix(_ABOUT).splitlines())
        try:
            for path in paths:
                check_inside(path)
        except ValueError as error:
            remedy = "Remove the folder, or name another with --out."
            raise LoomError(f"is not as gen view wrote it: {error}", show(folder / LIST), remedy) from None
        return paths
    if os.path.lexists(folder) and not folder.is_dir():
        raise LoomError("is not a folder", show(folder), "Name another with --out.")
    if folder.is_dir() and any(folder.iterdir()):
        remedy = "Name an empty or a new folder with --out, or empty this one."
        raise LoomError("holds something other than a site of gen view", show(folder), remedy)
    return set()


def _check_way(folder: Path, path: str, known: bool) -> None:
    """Refuses to write over what is not gen's own, or through a link."""
    place = folder / path
    for parent in place.relative_to(folder).parents:
        if kind_of(folder / parent) not in ("", "folder") and parent != Path("."):
            raise LoomError("is in the way of a folder of the site", show(folder / parent), "Move it.")
    if (kind := kind_of(place)) and not (known and kind == "file"):
        raise LoomError("is in the way of a page, and gen view did not make it", show(place), "Move it.")


def _listed(paths: Iterable[str]) -> str:
    return _ABOUT + "".join(f"{path}\n" for path in sorted(paths))
