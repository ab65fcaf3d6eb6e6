"""What gen asks git for: three-way merges of texts, files of older commits, the state of a merge."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from generator.disk.look import sha256
from generator.errors import LoomError

MARKS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")
MOST = 200  # commits that are looked through for a file
# by which another repository, or another index of this one, would answer
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")


class Merged(NamedTuple):
    """A three-way merge; conflicts stand in the text, between marks."""

    text: str
    conflicts: int


def git(folder: Path, *words: str, code: int | None = 0, given: bytes = b"") -> bytes:
    """What a command of git prints in a folder, of the repository around it.

    Args:
        code: the exit code that it must have, None for any.
        given: what it reads.
    """
    variables = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=variables, input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise LoomError("git is not installed", remedy="Install git.") from None
    if code is not None and done.returncode != code:
        said = done.stderr.decode(errors="replace").strip()
        raise LoomError(f"git {words[0]} failed: {said}", str(folder), "Do what git says, then try again.")
    return done.stdout


def merge_texts(ours: str, base: str, theirs: str, names: tuple[str, str, str]) -> Merged:
    """The merge of two texts that grew from one, as `git merge-file` makes it.

    Args:
        names: of the three, for the marks of conflicts.
    """
    with tempfile.TemporaryDirectory(prefix="gen-") as folder:
        for name, text in zip(("ours", "base", "theirs"), (ours, base, theirs), strict=True):
            Path(folder, name).write_bytes(text.encode())
        labels = [word for name in names for word in ("-L", name)]
        command = ["git", "merge-file", "-p", *labels, "ours", "base", "theirs"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        except FileNotFoundError:
            raise LoomError("git is not installed", remedy="Install git.") from None
        if done.returncode > 127:  # below, the number of conflicts
            said = done.stderr.decode(errors="replace").strip()
            raise LoomError(f"git merge-file failed: {said}", names[0], "Make it a text file.")
        return Merged(done.stdout.decode(), done.returncode)


def has_marks(text: str) -> int:
    """The first line, from 1, that a conflict was left at, 0 where there is none."""
    lines = text.split("\n")
    return next((number for number, line in enumerate(lines, 1) if line.startswith((MARKS[0], MARKS[2]))), 0)


def older_file(folder: Path, path: str, digest: str, revision: str = "HEAD") -> str | None:
    """The text with a hash that a file once had in git's history, None where it never had."""
    found = git(folder, "rev-list", f"--max-count={MOST}", revision, "--", path, code=None).decode().split()
    for commit in found:
        data = git(folder, "show", f"{commit}:./{path}", code=None)
        if sha256(data) == digest:
            return data.decode()
    return None


def last_commit(folder: Path, path: str, first: int, last: int) -> str:
    """The commit that changed these lines of a file last, as `HASH SUBJECT`; '' where git does not know of it."""
    if not git(folder, "ls-files", "--", path, code=None):
        return ""
    if git(folder, "status", "--porcelain", "--", path, code=None):
        return "not committed"
    lines = git(folder, "log", "-1", "-s", "--format=%h %s", f"-L{first},{last}:{path}", code=None)
    return lines.decode(errors="replace").strip()


def top_of(folder: Path) -> Path:
    """The root of the repository around a folder."""
    try:
        return Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except LoomError as error:
        raise LoomError("is in no git repository", str(folder), "Run it in a repository.") from error
