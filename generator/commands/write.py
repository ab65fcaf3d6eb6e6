"""Writes a package to disk, and never over work that is not gen's own.

A file is gen's own when its bytes are those that the lock names. A build first leaves the new lock as a hidden journal,
then replaces each file whose bytes differ, and last turns the journal into the lock. So a build that was cut short can
be told from one that someone edited, and the next build mends it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from generator.commands.lock import check_inside, read_lock, sha256
from generator.commands.project import LOCK, MAP
from generator.errors import LoomError

JOURNAL = ".gen.pending"
SCRATCH = ".gen.tmp"
RECORDS = (LOCK, MAP)  # nobody works on these, and a merge leaves its marks in them


@dataclass(frozen=True)
class Plan:
    """What writing a package would do; paths are relative to the package and sorted.

    Attributes:
        write: files to create or replace.
        remove: files of an older build that nothing makes any more.
        blocked: path -> why gen would destroy somebody's work there.
        unchanged: files that are as they should be.
    """

    write: tuple[str, ...]
    remove: tuple[str, ...]
    blocked: dict[str, str]
    unchanged: tuple[str, ...]


class Owned:
    """What earlier builds of a package left, by its lock and by the journal of a build that was cut short.

    Args:
        folder: the package.
        shown: how messages name it.
    """

    def __init__(self, folder: Path, shown: str):
        self.folder = folder
        self.hashes: dict[str, set[str]] = {}
        self.interrupted = (folder / JOURNAL).is_file()
        for name in (LOCK, JOURNAL):
            # without a readable lock nothing is owned, and so nothing is overwritten
            with suppress(LoomError):
                for path, digest in read_lock(folder, shown, name).outputs.items():
                    self.hashes.setdefault(path, set()).add(digest)

    def holds(self, path: str, data: bytes) -> bool:
        return sha256(data) in self.hashes.get(path, ())


def read_output(path: Path, shown: str) -> bytes | None:
    """The bytes of a plain file, None where there is none; a symbolic link is not followed.

    Args:
        shown: how messages name the file.

    Raises:
        LoomError: something that is no file stands there.
    """
    if path.is_symlink():
        return b""
    if path.is_dir():
        raise LoomError("is a folder where gen makes a file", shown, "Move it away.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def plan_write(folder: Path, shown: str, files: dict[str, bytes]) -> Plan:
    """Compares what a build made with what is on disk.

    Args:
        folder: the package.
        shown: how messages name it.
        files: path in the package -> bytes, the lock included.

    Raises:
        LoomError: the folder is a link or a file, or a file stands where the package has a folder.
    """
    check_folder(folder, shown)
    owned = Owned(folder, shown)
    write: list[str] = []
    remove: list[str] = []
    unchanged: list[str] = []
    blocked: dict[str, str] = {}
    for path in sorted(files.keys() | owned.hashes.keys()):
        check_inside(path)
        _check_parents(folder, path, shown)
        link = (folder / path).is_symlink()
        data = read_output(folder / path, f"{shown}/{path}")
        if path in files and data == files[path] and not link:
            unchanged.append(path)
            continue
        if data is None and path not in files:
            continue
        if data is not None and path not in RECORDS and (link or not owned.holds(path, data)):
            known = path in owned.hashes
            blocked[path] = "is a symbolic link" if link else "was edited" if known else "was not made by gen"
        (write if path in files else remove).append(path)
    return Plan(tuple(write), tuple(remove), blocked, tuple(unchanged))


def write_package(folder: Path, shown: str, files: dict[str, bytes], force: bool) -> Plan:
    """Writes a package.

    Args:
        folder: the package; made where it is missing.
        shown: how messages name it.
        files: path in the package -> bytes, the lock included.
        force: overwrite and delete also what gen does not own.

    Returns:
        What was done; where `blocked` is not empty and `force` is not given, nothing was.

    Raises:
        LoomError: the folder cannot be written.
    """
    check_folder(folder, shown)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            plan = plan_write(folder, shown, files)
            if force or not plan.blocked:
                _apply(folder, plan, files)
            return plan
    except OSError as error:
        name = os.path.relpath(error.filename, folder) if error.filename else ""
        place = shown if name in ("", ".") or name.startswith("..") else f"{shown}/{name}"
        remedy = (
            "Make room and the folder writable, then build again; a build that was cut short is mended by the next."
        )
        raise LoomError(f"cannot be written: {error.strerror}", place, remedy) from None


def _apply(folder: Path, plan: Plan, files: dict[str, bytes]) -> None:
    outputs = [path for path in plan.write if path != LOCK]
    if not outputs and not plan.remove and LOCK not in plan.write:
        (folder / JOURNAL).unlink(missing_ok=True)
        return
    _replace(folder, JOURNAL, files[LOCK])
    for path in outputs:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _replace(folder, path, files[path])
    for path in plan.remove:
        (folder / path).unlink(missing_ok=True)
        _remove_empty(folder, (folder / path).parent)
    if LOCK in plan.write:
        os.replace(folder / JOURNAL, folder / LOCK)
    else:
        (folder / JOURNAL).unlink()


def _replace(folder: Path, path: str, data: bytes) -> None:
    """A reader sees the old file or the new one, never a part."""
    scratch = folder / SCRATCH
    scratch.write_bytes(data)
    os.replace(scratch, folder / path)


def _remove_empty(folder: Path, parent: Path) -> None:
    while parent != folder and not any(parent.iterdir()):
        parent.rmdir()
        parent = parent.parent


def check_folder(folder: Path, shown: str) -> None:
    """Refuses a package folder that gen must not write to.

    Raises:
        LoomError: it is a symbolic link, or it or a folder above it is a file.
    """
    if folder.is_symlink():
        remedy = "Remove the link, or build elsewhere with --out."
        raise LoomError("is a symbolic link, and gen writes only to folders of its own", shown, remedy)
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise LoomError("is a file where gen needs a folder", str(place), "Move it, or build elsewhere with --out.")


def _check_parents(folder: Path, path: str, shown: str) -> None:
    place = folder
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            kind = "symbolic link" if place.is_symlink() else "file"
            where = f"{shown}/{place.relative_to(folder).as_posix()}"
            raise LoomError(f"is a {kind} where the package has a folder", where, "Move it away, then build again.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Makes a second build of the same package wait, where the system has file locks."""
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
