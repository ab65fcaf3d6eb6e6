"""Writes a package to disk, and never over work that is not gen's own.

A build first leaves the new lock as a hidden journal, then replaces each file whose bytes differ, and last turns the
journal into the lock. So a build that was cut short can be told from one that someone edited: the next finishes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from generator.disk.lock import LOCK, MAP, Combination
from generator.disk.look import sha256, show
from generator.disk.status import JOURNAL, Compared, compare
from generator.errors import LoomError

SCRATCH = ".gen.tmp"


def write_package(folder: Path, asked: Combination, files: dict[str, bytes], force: bool) -> Compared:
    """Writes a package to its folder, which is made where it is missing.

    Args:
        asked: what it is.
        files: path in the package -> bytes, the lock included.
        force: overwrite and delete also what gen does not own.

    Returns:
        How the files stood; where some are blocked and `force` is not given, nothing was written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            found = compare(folder, asked, {path: sha256(data) for path, data in files.items()})
            if found.differs and (force or not found.blocked):
                _apply(folder, found, files)
            return found
    except OSError as error:
        remedy = (
            "Free some space or make the folder writable, then build again: that finishes a build that was cut short."
        )
        raise LoomError(f"cannot be written: {error.strerror}", show(Path(error.filename or folder)), remedy) from None


def write_records(folder: Path, files: dict[str, bytes]) -> None:
    """Writes the map and the lock of a new build and no other file: what differs from it counts as edited."""
    with alone(folder):
        for path in (MAP, LOCK):
            replace_file(folder, path, files[path])


def _apply(folder: Path, found: Compared, files: dict[str, bytes]) -> None:
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
    """A reader sees the old file or the new one, never a part."""
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
