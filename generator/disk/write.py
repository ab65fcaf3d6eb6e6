"""Writes packages, their locks, and sites of pages; never overwrites files that are not gen's, and follows no link.

A build first writes the new lock as a hidden journal, then replaces each file whose bytes differ, and last renames the
journal to the lock. So an interrupted build is not mistaken for an edit: the next build completes it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from generator.disk.files import check_relative_path, display_path, kind_of, read_plain_file, sha256
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, format_locks, read_locks
from generator.disk.project import Project
from generator.disk.status import JOURNAL, PackageStatus, compare_with_disk
from generator.errors import LoomError

SCRATCH = ".gen.tmp"
IGNORE = ".gitignore"
SITE = ".gen-view"  # lists the files of a site, in its folder
_ABOUT_SITE = "# The files of a site that gen view made: it overwrites these, and removes those that are no more.\n"
_OWN_LINE = re.compile(r"/\w+/")  # of .gitignore


def write_package(folder: Path, combination: Combination, files: dict[str, bytes], force: bool) -> PackageStatus:
    """Writes a package to its folder, which is created if it is missing.

    Args:
        files: path in the package -> bytes, including the lock.
        force: overwrites and deletes edited files too.

    Returns:
        The status before; nothing was written if files are blocked and `force` is not given.
    """
    remedy = "Free some space or make the folder writable, then build again: that finishes a build that was cut short."
    with _explain_errors(folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder):
            status = compare_with_disk(folder, combination, {path: sha256(data) for path, data in files.items()})
            if status.differs and (force or not status.blocked):
                _write_changes(folder, status, files)
            return status


@contextmanager
def whole_or_absent(path: Path) -> Iterator[None]:
    """Removes what a step that ends early, by an error or by Ctrl-C, leaves at a path where nothing was before."""
    was_there = os.path.lexists(path)
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def write_records(folder: Path, files: dict[str, bytes]) -> None:
    """Writes only the map and the lock of a new build: files that differ from it then count as edited."""
    with lock_folder(folder):
        for path in (MAP, LOCK):
            replace_file(folder, path, files[path])


def _write_changes(folder: Path, status: PackageStatus, files: dict[str, bytes]) -> None:
    replace_file(folder, JOURNAL, files[LOCK])
    for path in status.to_write:
        if path != LOCK:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folder, path, files[path])
    for path in status.to_remove:
        (folder / path).unlink(missing_ok=True)
        parent = (folder / path).parent
        while parent != folder and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent
    if LOCK in status.to_write:
        os.replace(folder / JOURNAL, folder / LOCK)
    else:
        (folder / JOURNAL).unlink()


def replace_file(folder: Path, path: str, data: bytes) -> None:
    """Replaces a file atomically: a reader gets the old bytes or the new ones."""
    scratch = folder / SCRATCH
    scratch.unlink(missing_ok=True)  # it may be a link to somebody's file
    with scratch.open("xb") as file:  # "x" refuses a link that was created since
        file.write(data)
    os.replace(scratch, folder / path)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on a folder, so that a second build waits; does nothing without file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
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


def read_gitignore(project: Project) -> list[str]:
    """Reads the lines of the .gitignore in the output folder; none if there is no such file."""
    path = project.generated / IGNORE
    return read_plain_file(path).splitlines() if kind_of(path) else []


def expected_gitignore(project: Project) -> list[str]:
    """Returns the lines that it should have: other people's, and one for each uncommitted package."""
    others = [line for line in read_gitignore(project) if not _OWN_LINE.fullmatch(line)]
    return others + [f"/{combination.name}/" for combination in project.listing.uncommitted]


def is_generated_gitignore(project: Project) -> bool:
    """Returns whether gen wrote every line of it."""
    return all(map(_OWN_LINE.fullmatch, read_gitignore(project)))


def write_lock(project: Project, name: str, text: str) -> None:
    """Writes the lock of one package to packages.lock; replaces a damaged file."""
    project.generated.mkdir(parents=True, exist_ok=True)
    with lock_folder(project.generated):
        locks = dict[str, str]()
        with suppress(LoomError):
            locks = read_locks(project.generated)
        if locks.get(name) != text:
            replace_file(project.generated, LOCKS, format_locks(locks | {name: text}).encode())


def update_uncommitted_records(project: Project) -> None:
    """Removes the locks of committed packages from packages.lock, and updates .gitignore."""
    names = {combination.name for combination in project.listing.uncommitted}
    with suppress(LoomError):
        locks = read_locks(project.generated)
        remaining = {name: text for name, text in locks.items() if name in names}
        if remaining != locks or not remaining:
            _write_or_remove(project.generated, LOCKS, format_locks(remaining) if remaining else "")
    if (lines := expected_gitignore(project)) != read_gitignore(project):
        _write_or_remove(project.generated, IGNORE, "".join(f"{line}\n" for line in lines))


def _write_or_remove(folder: Path, path: str, text: str) -> None:
    """Writes a file, or removes it if its text is empty."""
    if text:
        replace_file(folder, path, text.encode())
    else:
        (folder / path).unlink(missing_ok=True)


def write_site(folder: Path, files: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """Writes each page of a site, and removes pages of an earlier one that are not made any more.

    Args:
        files: path in the folder -> text.

    Returns:
        The number of files and of bytes.
    """
    before = check_site(folder)
    pages = {path: text.encode() for path, text in files}
    with _explain_errors(folder, "Free some space, make the folder writable, or name another with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        # first, so that an interrupted site is recognized as one
        replace_file(folder, SITE, _format_site_list(before | pages.keys()))
        for path, data in pages.items():
            for parent in (folder / path).relative_to(folder).parents[:-1]:
                if kind_of(folder / parent) not in ("", "folder"):
                    raise LoomError("is in the way of a folder of the site", display_path(folder / parent), "Move it.")
            if (kind := kind_of(folder / path)) and not (path in before and kind == "file"):
                message = "is in the way of a page, and gen view did not make it"
                raise LoomError(message, display_path(folder / path), "Move it.")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        for path in before - pages.keys():
            if kind_of(folder / path) == "file":
                (folder / path).unlink()
        replace_file(folder, SITE, _format_site_list(pages.keys()))
    return len(pages), sum(map(len, pages.values()))


def check_site(folder: Path) -> set[str]:
    """Returns the files of the site in a folder; none if it is empty or missing. Refuses any other folder."""
    if (folder / SITE).is_file():
        paths = set(read_plain_file(folder / SITE).removeprefix(_ABOUT_SITE).splitlines())
        try:
            for path in paths:
                check_relative_path(path)
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


def _format_site_list(paths: Iterable[str]) -> bytes:
    return (_ABOUT_SITE + "".join(f"{path}\n" for path in sorted(paths))).encode()
