"""Asks git: for three-way merges of texts, files of older commits, and what it tracks that a disk does not show."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from generator.disk.files import display_path, is_cache, sha256
from generator.disk.lock import LOCK, LOCKS, split_locks
from generator.errors import LoomError

MARKS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")
PLAIN = "100644"  # the mode of a file that is neither executable nor a link
SEARCHED_COMMITS = 200
# by which another repository, or another index of this one, would answer
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")


class Merged(NamedTuple):
    """A three-way merge; conflicts stand in the text, between marks."""

    text: str
    conflicts: int


class Surprise(NamedTuple):
    """Something of a tracked file that reading the folder does not tell.

    Attributes:
        path: below the folder.
        hidden: whether gen looks past a file of this name.
        reason, command: how it differs, and the command that ends it.
    """

    path: str
    hidden: bool
    reason: str
    command: str


def git(folder: Path, *words: str, code: int | None = 0, given: bytes = b"") -> bytes:
    """Runs git in a folder, for the repository around it, and returns its standard output.

    Args:
        code: the exit code that it must have, None for any.
        given: its standard input.
    """
    done = _run(folder, words, given)
    if code is not None and done.returncode != code:
        raise LoomError(f"git {words[0]} failed: {_stderr(done)}", str(folder), "Do what git says, then try again.")
    return done.stdout


def _run(folder: Path, words: Sequence[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    variables = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        return subprocess.run(["git", *words], cwd=folder, env=variables, input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise LoomError("git is not installed", remedy="Install git.") from None


def _stderr(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode(errors="replace").strip()


def split_paths(listed: bytes) -> list[str]:
    """The paths of a list that git wrote with -z."""
    return [os.fsdecode(name) for name in listed.split(b"\0")[:-1]]


def merge_texts(ours: str, base: str, theirs: str, names: tuple[str, str, str]) -> Merged:
    """Merges two texts that grew from one, as `git merge-file` does.

    Args:
        names: of the three, for the marks of conflicts.
    """
    with tempfile.TemporaryDirectory(prefix="gen-") as folder:
        for name, text in zip(("ours", "base", "theirs"), (ours, base, theirs), strict=True):
            Path(folder, name).write_bytes(text.encode())
        labels = [word for name in names for word in ("-L", name)]
        done = _run(Path(folder), ["merge-file", "-p", *labels, "ours", "base", "theirs"])
    if done.returncode > 127:  # below, the number of conflicts
        raise LoomError(f"git merge-file failed: {_stderr(done)}", names[0], "Make it a text file.")
    return Merged(done.stdout.decode(), done.returncode)


def has_marks(text: str) -> int:
    """The first line, from 1, at which a merge left a conflict, 0 where there is none."""
    lines = text.split("\n")
    return next((number for number, line in enumerate(lines, 1) if line.startswith((MARKS[0], MARKS[2]))), 0)


def older_file(folder: Path, path: str, digest: str, revision: str = "HEAD") -> str | None:
    """The text with a hash that a file once had in git's history, None where it never had."""
    found = git(folder, "rev-list", f"--max-count={SEARCHED_COMMITS}", revision, "--", path, code=None).decode().split()
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
    top = os.fsdecode(git(folder, "rev-parse", "--show-toplevel", code=None)).rstrip("\n")
    if not os.path.isabs(top):
        raise LoomError("is in no git repository", display_path(folder), "Run it in a repository.")
    return Path(top)


def find_commit(folder: Path, revision: str) -> str:
    """The hash of the commit that a revision names."""
    named = f"{revision}^{{commit}}"
    found = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", named, code=None).decode().strip()
    if not found:
        remedy = "Name a commit, a branch or a tag, or fetch it; git log and git branch list them."
        raise LoomError(f"there is no revision {revision!r}", display_path(folder), remedy)
    return found


def packages_at(generated: Path, revision: str) -> tuple[str, dict[str, dict[str, bytes]]]:
    """The commit, and for each folder in the output folder its files at that revision: path in the folder -> bytes.

    It is what is committed, which people have and review, whether or not a build made it.
    """
    place = next(folder for folder in (generated, *generated.parents) if folder.is_dir())
    top_of(place)
    commit = find_commit(place, revision)
    folder = generated.relative_to(place).as_posix()
    blobs = _blobs(place, commit, [folder])
    blobs = {path if folder == "." else path.removeprefix(f"{folder}/"): blob for path, blob in blobs.items()}
    contents = _read(place, [blob for path, blob in blobs.items() if "/" in path or path == LOCKS])
    result: dict[str, dict[str, bytes]] = {}
    for path, blob in blobs.items():
        package, _, inner = path.partition("/")
        if inner:
            result.setdefault(package, {})[inner] = contents[blob]
    for name, lock in locks_of(contents.get(blobs.get(LOCKS, b""), b"")).items():
        result.setdefault(name, {})[LOCK] = lock
    return commit, result


def locks_of(data: bytes) -> dict[str, bytes]:
    """Name -> lock of the packages that are not committed, by packages.lock; none where it cannot be read."""
    with suppress(ValueError, RecursionError):
        return {name: lock.encode() for name, lock in split_locks(data.decode()).items()}
    return {}


def sources_at(root: Path, commit: str, folders: Sequence[str]) -> dict[str, bytes]:
    """The files below some folders of a root at a commit, by their paths; none where git has none of them."""
    blobs = {
        path: blob for path, blob in _blobs(root, commit, folders).items() if not any(map(is_cache, path.split("/")))
    }
    contents = _read(root, blobs.values())
    return {path: contents[blob] for path, blob in blobs.items()}


def _blobs(folder: Path, commit: str, below: Sequence[str]) -> dict[str, bytes]:
    """Path -> name of the content, of the files that a commit has below some folders of a folder."""
    listed = git(folder, "ls-tree", "-r", "-z", commit, "--", *below, code=None)
    entries = [entry.partition(b"\t") for entry in listed.split(b"\0")[:-1]]
    kinds = [about.split(b" ") for about, _, _ in entries]
    return {os.fsdecode(path): it[2] for it, (_, _, path) in zip(kinds, entries, strict=True) if it[1] == b"blob"}


def _read(folder: Path, blobs: Iterable[bytes]) -> dict[bytes, bytes]:
    """The contents of blobs by their names."""
    names = sorted({*blobs})
    found, contents, start = git(folder, "cat-file", "--batch", given=b"".join(b"%b\n" % n for n in names)), {}, 0
    for name in names:
        end = found.index(b"\n", start)
        size = int(found[start:end].split(b" ")[2])
        contents[name] = found[end + 1 : end + 1 + size]
        start = end + 1 + size + 1
    return contents


def index_faults(folder: Path, staged: bool) -> Iterator[Surprise]:
    """Finds surprises among the files that git tracks below a folder; none where no repository holds it.

    Args:
        staged: also compare what is staged, and what an attribute makes of it, with what is on disk.
    """
    if not folder.is_dir() or not any(os.path.lexists(place / ".git") for place in (folder, *folder.parents)):
        return
    names = ("--name-only", "--relative", "-z")
    changed = {*split_paths(git(folder, "diff", *names))} if staged else set[str]()
    for entry in split_paths(git(folder, "ls-files", "-z", "--stage", "-v")):
        about, _, path = entry.partition("\t")
        tag, mode, blob = about.split(" ")[:3]
        shown = shlex.quote(display_path(folder / path))
        if any(map(is_cache, path.split("/"))):
            reason = "is tracked by git, and has the name of a cache or of a hidden file, which nobody looks at"
            yield Surprise(path, True, reason, f"git rm --cached -- {shown}")
        elif mode != PLAIN:
            kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(mode, f"a file of mode {mode}")
            fix = f"chmod 644 {shown} && git add --chmod=-x -- {shown}" if mode == "100755" else f"git add -- {shown}"
            yield Surprise(path, False, f"is {kind} in git, and not a plain file of mode {PLAIN}", fix)
        elif tag == "S" or tag.islower():
            reason = "is marked assume-unchanged or skip-worktree: git does not show how it differs from the commit"
            marks = [f"git update-index --no-{mark} -- {shown}" for mark in ("assume-unchanged", "skip-worktree")]
            yield Surprise(path, False, reason, " && ".join(marks))
        elif staged and path not in changed and not _is_blob((folder / path).read_bytes(), blob):
            reason = "has other bytes in git than on disk, by an attribute (filter, ident, working-tree-encoding)"
            yield Surprise(path, False, reason, f"git check-attr -a -- {shown}")
    for path in sorted(changed.intersection(split_paths(git(folder, "diff", "--cached", *names)))) if staged else ():
        fix = f"git add -- {shlex.quote(display_path(folder / path))}"
        yield Surprise(path, False, "is staged with another content than on disk", fix)


def _is_blob(data: bytes, blob: str) -> bool:
    """Whether git would name these bytes so, with the line ends of Windows or without."""
    new = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    texts = data, data.replace(b"\r\n", b"\n")
    return blob in {new(b"blob %d\0%b" % (len(text), text)).hexdigest() for text in texts}


def uncommitted(folder: Path) -> list[str]:
    """The files below a folder that are not on disk as in the last commit; none where no repository holds it."""
    return split_paths(git(folder, "diff", "HEAD", "--name-only", "--relative", "-z", code=None))
