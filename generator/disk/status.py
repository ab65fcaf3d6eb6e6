"""Decides, and no other module does, how a package on disk differs from what a build makes.

`gen check` prints it, `gen build` acts on it, `gen diff` shows it. A file is gen's own when its bytes are those that a
lock names, or the journal of a build that was cut short. A lock that is not as gen wrote it, or that is of another
package, owns nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from generator.disk.files import display_path, entries_below, kind_of, sha256
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, read_lock
from generator.errors import LoomError

JOURNAL = ".gen.pending"
RECORDS = (LOCK, MAP)  # nobody works on these, and a merge leaves its marks in them
WINDOWS = "has the line ends of Windows (CRLF), as git makes them where core.autocrlf is true"
CHANGED = "a build would change this file"
EDITED, STALE, MISSING, ORPHAN, FOREIGN = "edited", "stale", "missing", "orphan", "foreign"


class FileStatus(NamedTuple):
    """How a file differs from what a build makes.

    Attributes:
        path: in the package.
        wanted: whether a build makes it.
        state: *edited* when someone changed it since it was built, or put it where a build has a file; *stale* when a
            build would change it; *missing* when it is gone; an *orphan* when gen built it, but nothing makes it any
            more; *foreign* when gen has nothing to do with it; '' when it is as it should be.
        reason: the state in words.
    """

    path: str
    wanted: bool
    state: str
    reason: str

    @property
    def is_work(self) -> bool:
        """Whether somebody's work would be lost if gen wrote or removed it."""
        return self.state == EDITED and self.path not in RECORDS


@dataclass(frozen=True)
class PackageStatus:
    """A package on disk beside what a build makes.

    Attributes:
        shown: its folder, as messages give it.
        files: all that is made, owned or there, sorted by path.
        reasons: why the lock could not say what a build makes now.
        made: path -> bytes of what a build makes, None where the lock said it by hashes.
        only_lock: whether its lock, in packages.lock, stands for its files, of which none is there.
    """

    shown: str
    files: list[FileStatus]
    reasons: list[str] = field(default_factory=list)
    made: dict[str, bytes] | None = None
    only_lock: bool = False

    def place(self, path: str) -> str:
        """How messages name a file of it."""
        own = not self.only_lock or path != LOCK
        return f"{self.shown}/{path}" if own else (PurePosixPath(self.shown).parent / LOCKS).as_posix()

    @property
    def write(self) -> list[str]:
        """Files to create or replace."""
        return [file.path for file in self.files if file.wanted and file.state]

    @property
    def remove(self) -> list[str]:
        """Files of an older build that nothing makes any more."""
        return [file.path for file in self.files if not file.wanted and file.state in (ORPHAN, EDITED)]

    @property
    def blocked(self) -> list[FileStatus]:
        """Files to write or remove that are somebody's work."""
        return [file for file in self.files if file.is_work]

    @property
    def differs(self) -> bool:
        return bool(self.write or self.remove)

    @property
    def unchanged(self) -> int:
        return sum(file.wanted and not file.state for file in self.files)

    @property
    def summary(self) -> str:
        removed = f", {len(self.remove)} removed" if self.remove else ""
        if not self.differs:
            return "as it should be"
        return "lock written" if self.only_lock else f"{len(self.write)} written{removed}, {self.unchanged} unchanged"


def compare_with_disk(
    folder: Path, asked: Combination, wanted: dict[str, str], only_lock: bool = False
) -> PackageStatus:
    """Compares every file of the package in a folder with what a build makes.

    Args:
        asked: what it is to be.
        wanted: path in the package -> sha256 of all that a build makes, the lock too.
        only_lock: whether its lock, in packages.lock, stands for its files, of which none is there.
    """
    check_folder(folder)
    owned: dict[str, set[str]] = {}
    for name in (LOCK, JOURNAL):
        with suppress(LoomError):
            for path, built in read_lock(folder, asked, name).files.items():
                owned.setdefault(path, set()).add(built)
    if only_lock and not owned:  # a lock that says nothing
        wanted = {path: digest for path, digest in wanted.items() if path == LOCK}
    named = wanted.keys() | owned.keys()
    for parent in sorted({parent for path in named for parent in PurePosixPath(path).parents[:-1]}):
        check_is_folder(folder / parent, "", "Move it, then build again.")
    files = []
    for path in sorted(named.union(entries_below(folder))):
        digest = _digest(folder / path) if path in named else ""
        if only_lock and digest is None:
            digest = next(iter(owned.get(path, ())), None)
        state, reason = _judge(path, digest, wanted.get(path), owned.get(path))
        if state == EDITED and _digest(folder / path, b"\r\n") in (wanted.get(path), *owned.get(path, ())):
            reason = WINDOWS
        if path == LOCK and kind_of(folder / JOURNAL):
            state, reason = STALE, "a build was cut short"
        files.append(FileStatus(path, path in wanted, state, reason))
    return PackageStatus(display_path(folder), files, only_lock=only_lock)


def _judge(path: str, digest: str | None, wanted: str | None, owned: set[str] | None) -> tuple[str, str]:
    """The state of a file and the reason.

    Args:
        digest: of what is on disk; None where nothing is, a word where it is no plain file.
        wanted: what a build makes, None for nothing.
        owned: what builds have left there, None for nothing.
    """
    if digest == wanted:
        return "", ""
    if not wanted and not owned:
        return FOREIGN, "was not made by gen"
    if digest is None:
        return (MISSING, "is gone") if owned or path in RECORDS else (STALE, "a build would add this file")
    if owned and digest in owned:
        return (STALE, CHANGED) if wanted else (ORPHAN, "nothing makes this file any more")
    if len(digest) < 64:
        return EDITED, f"is a {digest}"
    return EDITED, "was edited since it was built" if owned else "was not made by gen"


def _digest(path: Path, line_end: bytes = b"\n") -> str | None:
    """The hash of a file, None where none is there, or in a word what is.

    Args:
        line_end: what is read as a newline.
    """
    kind = kind_of(path)
    if kind == "folder":
        raise LoomError("is a folder where gen makes a file", display_path(path), "Move it away.")
    return sha256(path.read_bytes().replace(line_end, b"\n")) if kind == "file" else kind or None


def check_folder(folder: Path) -> None:
    """Refuses a package folder that gen must not write to."""
    remedy = "Move it away, or build elsewhere with --out."
    check_is_folder(folder, " of its own", remedy)
    for place in folder.parents:
        if place.exists() and not place.is_dir():
            raise LoomError("is a file where gen needs a folder", display_path(place), remedy)


def check_is_folder(place: Path, kind: str, remedy: str) -> None:
    """Refuses what is neither a folder nor missing: a link is not followed."""
    if (found := kind_of(place)) not in ("", "folder"):
        raise LoomError(f"is a {found} where gen needs a folder{kind}", display_path(place), remedy)
