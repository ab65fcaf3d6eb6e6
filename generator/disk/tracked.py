"""What git would commit of a folder that does not show on disk, or that people and tools look past."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from generator.disk.git import git
from generator.disk.look import is_cache, show

PLAIN = "100644"  # the mode of a file that is neither executable nor a link


class Surprise(NamedTuple):
    """Something of a file that git has, and that reading the folder does not tell.

    Attributes:
        path: below the folder.
        hidden: whether gen looks past a file of this name.
        reason, command: what it is, and what ends it.
    """

    path: str
    hidden: bool
    reason: str
    command: str


def surprises(folder: Path, staged: bool) -> Iterator[Surprise]:
    """What is surprising about the files that git tracks below a folder; nothing where no repository holds it.

    Args:
        staged: also compare what is staged, and what an attribute makes of it, with what is on disk.
    """
    if not folder.is_dir() or not any(os.path.lexists(place / ".git") for place in (folder, *folder.parents)):
        return
    changed = {*_names(git(folder, "diff", "--name-only", "--relative", "-z"))} if staged else set[str]()
    for entry in _names(git(folder, "ls-files", "-z", "--stage", "-v")):
        about, _, path = entry.partition("\t")
        tag, mode, blob = about.split(" ")[:3]
        shown = shlex.quote(show(folder / path))
        if any(is_cache(part) for part in path.split("/")):
            reason = "is tracked by git, and has the name of a cache or of a hidden file, which nobody looks at"
            yield Surprise(path, True, reason, f"git rm --cached -- {shown}")
        elif mode != PLAIN:
            kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(mode, f"a file of mode {mode}")
            reason = f"is {kind} in git, and not a plain file of mode {PLAIN}"
            fix = f"chmod 644 {shown} && git add --chmod=-x -- {shown}" if mode == "100755" else f"git add -- {shown}"
            yield Surprise(path, False, reason, fix)
        elif tag == "S" or tag.islower():
            reason = "is marked assume-unchanged or skip-worktree: git does not show how it differs from the commit"
            fix = " && ".join(
                f"git update-index --no-{mark} -- {shown}" for mark in ("assume-unchanged", "skip-worktree")
            )
            yield Surprise(path, False, reason, fix)
        elif staged and path not in changed and not _is_blob((folder / path).read_bytes(), blob):
            reason = "has other bytes in git than on disk, by an attribute (filter, ident, working-tree-encoding)"
            yield Surprise(path, False, reason, f"git check-attr -a -- {shown}")
    if staged:
        for path in sorted(changed & {*_names(git(folder, "diff", "--cached", "--name-only", "--relative", "-z"))}):
            yield Surprise(
                path, False, "is staged with another content than on disk", f"git add -- {show(folder / path)}"
            )


def uncommitted(folder: Path) -> list[str]:
    """The files below a folder that are not on disk as in the last commit; none where no repository holds it."""
    return _names(git(folder, "diff", "HEAD", "--name-only", "--relative", "-z", code=None))


def _is_blob(data: bytes, blob: str) -> bool:
    """Whether git would name these bytes so, with the line ends of Windows or without."""
    new = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    texts = data, data.replace(b"\r\n", b"\n")
    return blob in {new(b"blob %d\0%b" % (len(text), text)).hexdigest() for text in texts}


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0")[:-1]]
