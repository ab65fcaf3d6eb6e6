"""Writes packages, their locks, and sites of pages: never over work that is not gen's own, and never through a link.

A build first leaves the new lock as a hidden journal, then replaces each file whose bytes differ, and last turns the
journal into the lock. So a build that was cut short can be told from one that someone edited: the next finishes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from generator.disk.files import check_inside, display_path, kind_of, read_plain_file, sha256
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, join_locks, read_locks
from generator.disk.project import Project
from generator.disk.status import JOURNAL, PackageStatus, compare_with_disk
from generator.errors import LoomError

SCRATCH = ".gen.tmp"
IGNORE = ".gitignore"
SITE = ".gen-view"  # in the folder of a site: the list of its files
_ABOUT_SITE = "# The files of a site that gen view made: it overwrites these, and removes those that are no more.\n"
_OWN_LINE = re.compile(r"/\w+/")  # of .gitignore


def write_package(folder: Path, asked: Combination, files: dict[str, bytes], force: bool) -> PackageStatus:
    """Writes a package to its folder, which is made where it is missing.

    Args:
        asked: what it is.
        files: path in the package -> bytes, the lock included.
        force: overwrite and delete also what gen does not own.

    Returns:
        How the files stood; where some are blocked and `force` is not given, nothing was written.
    """
    remedy = "Free some space or make the folder writable, then build again: that finishes a build that was cut short."
    with _explain_errors(folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            found = compare_with_disk(folder, asked, {path: sha256(data) for path, data in files.items()})
            if found.differs and (force or not found.blocked):
                _apply(folder, found, files)
            return found


def write_records(folder: Path, files: dict[str, bytes]) -> None:
    """Writes the map and the lock of a new build and no other file: what differs from it counts as edited."""
    with alone(folder):
        for path in (MAP, LOCK):
            replace_file(folder, path, files[path])


def _apply(folder: Path, found: PackageStatus, files: dict[str, bytes]) -> None:
    replace_file(folder, JOURNAL, files[LOCK])
    for path in found.write:
        if path != LOCK:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folder, path, files[path])
    for path in found.remove:
        (folder / path).unlink(missing_ok=True)
        _remove_empty(folder, (folder / path).parent)
    if LOCK in found.write:
        os.replace(folder / JOURNAL, folder / LOCK)
    else:
        (folder / JOURNAL).unlink()


def replace_file(folder: Path, path: str, data: bytes) -> None:
    """Writes a file so that a reader sees the old one or the new one, never a part."""
    scratch = folder / SCRATCH
    scratch.unlink(missing_ok=True)  # it may be a link to somebody's file
    with scratch.open("xb") as file:  # which is refused where there is one again
        file.write(data)
    os.replace(scratch, folder / path)


def _remove_empty(folder: Path, parent: Path) -> None:
    while parent != folder and not any(parent.iterdir()):
        parent.rmdir()
        parent = parent.parent


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Makes a second build in the same folder wait, where the system has file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _explain_errors(folder: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = display_path(Path(error.filename or folder))
        raise LoomError(f"cannot be written: {error.strerror}", where, remedy) from None


def ignored_now(project: Project) -> list[str]:
    """The lines of .gitignore beside the packages."""
    path = project.generated / IGNORE
    return read_plain_file(path).splitlines() if kind_of(path) else []


def ignored_wanted(project: Project) -> list[str]:
    """The lines that it should have: other people's, and one for each package that is not committed."""
    others = [line for line in ignored_now(project) if not _OWN_LINE.fullmatch(line)]
    return others + [f"/{combination.name}/" for combination in project.uncommitted()]


def is_own_ignored(project: Project) -> bool:
    """Whether the file has lines of gen's own and no others."""
    return all(map(_OWN_LINE.fullmatch, ignored_now(project)))


def write_lock(project: Project, name: str, text: str) -> None:
    """Writes the lock of one package to packages.lock, beside those of the others; a broken file begins anew."""
    project.generated.mkdir(parents=True, exist_ok=True)
    with alone(project.generated):
        locks = dict[str, str]()
        with suppress(LoomError):
            locks = read_locks(project.generated)
        if locks.get(name) != text:
            replace_file(project.generated, LOCKS, join_locks(locks | {name: text}).encode())


def write_uncommitted(project: Project) -> None:
    """Takes the locks of committed packages out of packages.lock, and has git ignore the others."""
    names = {combination.name for combination in project.uncommitted()}
    with suppress(LoomError):
        locks = read_locks(project.generated)
        left = {name: text for name, text in locks.items() if name in names}
        if left != locks or not left:
            _write_or_remove(project.generated, LOCKS, join_locks(left) if left else "")
    if (lines := ignored_wanted(project)) != ignored_now(project):
        _write_or_remove(project.generated, IGNORE, "".join(f"{line}\n" for line in lines))


def _write_or_remove(folder: Path, path: str, text: str) -> None:
    """Writes a file, or removes it where it would be empty."""
    if text:
        replace_file(folder, path, text.encode())
    else:
        (folder / path).unlink(missing_ok=True)


def write_site(folder: Path, files: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Writes each page of a site, and removes those of an earlier one that are no more.

    Args:
        files: path in the folder -> text.

    Returns:
        How many files there are, and how many bytes.
    """
    before = check_site(folder)
    made = {path: text.encode() for path, text in files}
    with _explain_errors(folder, "Free some space, make the folder writable, or name another with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        # first, so that a site that was cut short is known as one
        replace_file(folder, SITE, _site_list(before | made.keys()))
        for path, data in made.items():
            for parent in (folder / path).relative_to(folder).parents[:-1]:
                if kind_of(folder / parent) not in ("", "folder"):
                    raise LoomError("is in the way of a folder of the site", display_path(folder / parent), "Move it.")
            if (kind := kind_of(folder / path)) and not (path in before and kind == "file"):
                message = "is in the way of a page, and gen view did not make it"
                raise LoomError(message, display_path(folder / path), "Move it.")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        for path in before - made.keys():
            if kind_of(folder / path) == "file":
                (folder / path).unlink()
        replace_file(folder, SITE, _site_list(made.keys()))
    return len(made), sum(map(len, made.values()))


def check_site(folder: Path) -> set[str]:
    """The files of the site in a folder, none where it is empty or missing; an error where it is anything else."""
    if (folder / SITE).is_file():
        paths = set(read_plain_file(folder / SITE).removeprefix(_ABOUT_SITE).splitlines())
        try:
            for path in paths:
                check_inside(path)
        except ValueError as error:
            remedy = "Remove the folder, or name another with --out."
            raise LoomError(f"is not as gen view wrote it: {error}", display_path(folder / SITE), remedy) from None
        return paths
    if os.path.lexists(folder) and not folder.is_dir():
        raise LoomError("is not a folder", display_path(folder), "Name another with --out.")
    if folder.is_dir() and any(folder.iterdir()):
        remedy = "Name an empty or a new folder with --out, or empty this one."
        raise LoomError("holds something other than a site of gen view", display_path(folder), remedy)
    return set()


def _site_list(paths: Iterable[str]) -> bytes:
    return (_ABOUT_SITE + "".join(f"{path}\n" for path in sorted(paths))).encode()
