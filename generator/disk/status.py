"""Decides the state of each file of a package on disk; no other module does.

`gen check` prints it, `gen build` acts on it, `gen diff` shows it. A file belongs to gen if its bytes have the digest
that a lock has, or the journal of an interrupted build. A lock that is not as gen wrote it, or that is another
package's, owns no files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from generator.disk.files import display_path, kind_of, list_entries, sha256
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, read_lock
from generator.errors import LoomError

JOURNAL = ".gen.pending"
RECORDS = (LOCK, MAP)  # nobody edits these, and a merge may leave its markers in them
CRLF = "has the line ends of Windows (CRLF), as git makes them where core.autocrlf is true"
CHANGED = "a build would change this file"
EDITED, STALE, MISSING, ORPHAN, FOREIGN = "edited", "stale", "missing", "orphan", "foreign"
MEANINGS = {
    EDITED: "changed by hand since the build",
    STALE: "its sources, gen or a tool changed",
    MISSING: "deleted",
    ORPHAN: "generated once, but nothing makes it any more",
    FOREIGN: 'not made by gen; yours is listed in packages.toml: own = ["PACKAGE/FILE"]',
}


class FileStatus(NamedTuple):
    """The difference of a file from the build.

    Attributes:
        path: in the package.
        is_output: whether a build makes the file.
        state: one of `MEANINGS`, or "" if the file is as a build makes it.
        reason: explains the state.
    """

    path: str
    is_output: bool
    state: str
    reason: str

    @property
    def is_protected(self) -> bool:
        """Whether somebody's work would be lost if gen wrote or removed the file."""
        return self.state == EDITED and self.path not in RECORDS


@dataclass(frozen=True)
class PackageStatus:
    """The differences of a package on disk from the build.

    Attributes:
        label: its folder as messages print it.
        files: sorted by path: outputs, files of an older build, and all other files in the folder.
        reasons: why the lock alone could not tell what a build makes.
        outputs: path -> bytes of a build; None if the lock's digests were enough.
        is_lock_only: whether none of the files exists, and the lock in packages.lock stands for them.
    """

    label: str
    files: list[FileStatus]
    reasons: list[str] = field(default_factory=list)
    outputs: dict[str, bytes] | None = None
    is_lock_only: bool = False

    def label_file(self, path: str) -> str:
        """Returns the path of a file as messages print it."""
        in_locks = self.is_lock_only and path == LOCK
        return (PurePosixPath(self.label).parent / LOCKS).as_posix() if in_locks else f"{self.label}/{path}"

    @property
    def to_write(self) -> list[str]:
        """Files to create or replace."""
        return [file.path for file in self.files if file.is_output and file.state]

    @property
    def to_remove(self) -> list[str]:
        """Files of an older build that nothing makes any more."""
        return [file.path for file in self.files if not file.is_output and file.state in (ORPHAN, EDITED)]

    @property
    def blocked(self) -> list[FileStatus]:
        """Files to write or remove that hold somebody's work."""
        return [file for file in self.files if file.is_protected]

    def require_unblocked(self, command: str) -> None:
        """Refuses to overwrite somebody's work; the remedy names the command that does."""
        if lines := "".join(f"\n  {self.label}/{file.path} {file.reason}" for file in self.blocked):
            remedy = f"Keep your change in a fragment, or give it up: {command} --force"
            raise LoomError(f"nothing was written, because gen would destroy work:{lines}", self.label, remedy)

    @property
    def differs(self) -> bool:
        return bool(self.to_write or self.to_remove)

    @property
    def unchanged(self) -> int:
        """The number of outputs that are as a build makes them."""
        return sum(file.is_output and not file.state for file in self.files)

    @property
    def summary(self) -> str:
        if not self.differs:
            return "as it should be"
        removed = f", {len(self.to_remove)} removed" if self.to_remove else ""
        written = f"{len(self.to_write)} written{removed}, {self.unchanged} unchanged"
        return "lock written" if self.is_lock_only else written


def compare_with_disk(
    folder: Path, combination: Combination, outputs: dict[str, str], is_lock_only: bool = False
) -> PackageStatus:
    """Compares every file in the folder of a package with the outputs of a build.

    Args:
        outputs: path in the package -> sha256 of every file of a build, including the lock.
        is_lock_only: as in `PackageStatus`.
    """
    check_folder(folder)
    built: dict[str, set[str]] = {}
    for name in (LOCK, JOURNAL):
        with suppress(LoomError):
            for path, recorded in read_lock(folder, combination, name).files.items():
                built.setdefault(path, set()).add(recorded)
    if is_lock_only and not built:  # the lock is not valid
        outputs = {path: digest for path, digest in outputs.items() if path == LOCK}
    known = outputs.keys() | built.keys()
    for parent in sorted({parent for path in known for parent in PurePosixPath(path).parents[:-1]}):
        _check_is_folder(folder / parent, "", "Move it, then build again.")
    files = []
    for path in sorted(known.union(list_entries(folder))):
        digest: str | None = _hash_file(folder / path) if path in known else ""
        if is_lock_only and digest is None:
            digest = next(iter(built.get(path, ())), None)
        state, reason = _classify(path, digest, outputs.get(path), built.get(path))
        if state == EDITED and _hash_file(folder / path, b"\r\n") in (outputs.get(path), *built.get(path, ())):
            reason = CRLF
        if path == LOCK and kind_of(folder / JOURNAL):
            state, reason = STALE, "a build was cut short"
        files.append(FileStatus(path, path in outputs, state, reason))
    return PackageStatus(display_path(folder), files, is_lock_only=is_lock_only)


def _classify(path: str, digest: str | None, output: str | None, built: set[str] | None) -> tuple[str, str]:
    """Returns the state of a file and the reason.

    Args:
        digest: of the file on disk; None if there is no file, its kind if it is not a plain file.
        output: the digest of a build's output; None if a build does not make the file.
        built: the digests that earlier builds recorded; None if there are none.
    """
    if digest == output:
        return "", ""
    if not output and not built:
        return FOREIGN, "was not made by gen"
    if digest is None:
        return (MISSING, "is gone") if built or path in RECORDS else (STALE, "a build would add this file")
    if built and digest in built:
        return (STALE, CHANGED) if output else (ORPHAN, "nothing makes this file any more")
    if len(digest) < 64:
        return EDITED, f"is a {digest}"
    return EDITED, "was edited since it was built" if built else "was not made by gen"


def _hash_file(path: Path, line_end: bytes = b"\n") -> str | None:
    """Returns the digest of a plain file, the kind of anything else, and None if the path does not exist.

    Args:
        line_end: is hashed as a newline.
    """
    kind = kind_of(path)
    if kind == "folder":
        raise LoomError("is a folder where gen makes a file", display_path(path), "Move it away.")
    return sha256(path.read_bytes().replace(line_end, b"\n")) if kind == "file" else kind or None


def check_folder(folder: Path) -> None:
    """Refuses a folder of a package that gen must not write to."""
    remedy = "Move it away, or build elsewhere with --out."
    _check_is_folder(folder, " of its own", remedy)
    for place in folder.parents:
        if place.is_symlink() and not place.exists():
            message = f"is a symbolic link to {place.readlink()}, which is not there"
            raise LoomError(message, display_path(place), remedy)
        if place.exists() and not place.is_dir():
            raise LoomError("is a file where gen needs a folder", display_path(place), remedy)


def _check_is_folder(place: Path, kind: str, remedy: str) -> None:
    """Refuses a path that exists and is not a folder; a link is not followed."""
    if (found := kind_of(place)) not in ("", "folder"):
        raise LoomError(f"is a {found} where gen needs a folder{kind}", display_path(place), remedy)
