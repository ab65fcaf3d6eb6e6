"""Runs git: three-way merges of texts, files of commits, and what its index holds that the disk does not show."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from generator.disk.files import display_path, is_cache, sha256
from generator.disk.lock import LOCK, LOCKS, parse_locks
from generator.errors import LoomError

MARKS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")
PLAIN = "100644"  # the mode of a file that is neither executable nor a link
SEARCHED_COMMITS = 200
# these would make git use another repository, or another index of this one
REPOSITORY_VARIABLES = "DIR WORK_TREE COMMON_DIR INDEX_FILE OBJECT_DIRECTORY NAMESPACE".split()


class MergedText(NamedTuple):
    """A three-way merge; its text has conflict markers."""

    text: str
    conflicts: int


class IndexFault(NamedTuple):
    """A property of a tracked file that reading its folder does not show.

    Attributes:
        path: below the folder.
        is_hidden: whether gen ignores files of this name.
        reason: states how the file differs.
        command: fixes it.
    """

    path: str
    is_hidden: bool
    reason: str
    command: str


def run_git(folder: Path, *words: str, code: int | None = 0, stdin: bytes = b"") -> bytes:
    """Runs git in a folder, for the repository that the folder is in, and returns its standard output.

    Args:
        code: the expected exit code; None accepts any.
    """
    process = _start_git(folder, words, stdin)
    if code is not None and process.returncode != code:
        message = f"git {words[0]} failed: {_decode_stderr(process)}"
        raise LoomError(message, str(folder), "Do what git says, then try again.")
    return process.stdout


def _start_git(folder: Path, words: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    elsewhere = {f"GIT_{name}" for name in REPOSITORY_VARIABLES}
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    try:
        return subprocess.run(["git", *words], cwd=folder, env=env, input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        raise LoomError("git is not installed", remedy="Install git.") from None


def _decode_stderr(process: subprocess.CompletedProcess[bytes]) -> str:
    return process.stderr.decode(errors="replace").strip()


def list_paths(folder: Path, *words: str, code: int | None = 0) -> list[str]:
    """Returns the paths that a git command prints with -z."""
    return [os.fsdecode(name) for name in run_git(folder, words[0], "-z", *words[1:], code=code).split(b"\0")[:-1]]


def list_diff(folder: Path, *words: str, code: int | None = 0) -> list[str]:
    """Returns the paths below a folder that `git diff` finds, relative to it."""
    return list_paths(folder, "diff", *words, "--name-only", "--relative", code=code)


def merge_texts(ours: str, base: str, theirs: str, names: tuple[str, str, str]) -> MergedText:
    """Merges two texts three-way, as `git merge-file` does.

    Args:
        names: label the three texts in conflict markers.
    """
    with tempfile.TemporaryDirectory(prefix="gen-") as folder:
        for name, text in zip(("ours", "base", "theirs"), (ours, base, theirs), strict=True):
            Path(folder, name).write_bytes(text.encode())
        labels = [word for name in names for word in ("-L", name)]
        process = _start_git(Path(folder), ["merge-file", "-p", *labels, "ours", "base", "theirs"])
    if process.returncode > 127:  # up to 127, it is the number of conflicts
        raise LoomError(f"git merge-file failed: {_decode_stderr(process)}", names[0], "Make it a text file.")
    return MergedText(process.stdout.decode(), process.returncode)


def find_conflict_mark(text: str) -> int:
    """Returns the first line, from 1, with a conflict marker; 0 if there is none."""
    lines = text.split("\n")
    return next((number for number, line in enumerate(lines, 1) if line.startswith((MARKS[0], MARKS[2]))), 0)


def find_old_version(folder: Path, path: str, digest: str, revision: str = "HEAD") -> str | None:
    """Finds the version of a file with a digest in git's history; returns None if there is none."""
    listed = run_git(folder, "rev-list", f"--max-count={SEARCHED_COMMITS}", revision, "--", path, code=None)
    for commit in listed.decode().split():
        data = run_git(folder, "show", f"{commit}:./{path}", code=None)
        if sha256(data) == digest:
            return data.decode()
    return None


def find_last_commit(folder: Path, path: str, first: int, last: int) -> str:
    """Returns the last commit that changed these lines of a file, as `HASH SUBJECT`; "" if git does not track it."""
    if not run_git(folder, "ls-files", "--", path, code=None):
        return ""
    if run_git(folder, "status", "--porcelain", "--", path, code=None):
        return "not committed"
    log = run_git(folder, "log", "-1", "-s", "--format=%h %s", f"-L{first},{last}:{path}", code=None)
    return log.decode(errors="replace").strip()


def find_repository_root(folder: Path) -> Path:
    """Returns the root of the repository that a folder is in."""
    top = os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel", code=None)).rstrip("\n")
    if not os.path.isabs(top):
        raise LoomError("is in no git repository", display_path(folder), "Run it in a repository.")
    return Path(top)


def find_commit(folder: Path, revision: str) -> str:
    """Returns the hash of the commit that a revision names."""
    name = f"{revision}^{{commit}}"
    commit = run_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name, code=None).decode().strip()
    if not commit:
        remedy = "Name a commit, a branch or a tag, or fetch it; git log and git branch list them."
        raise LoomError(f"there is no revision {revision!r}", display_path(folder), remedy)
    return commit


def read_packages_at(generated: Path, revision: str) -> tuple[str, dict[str, dict[str, bytes]]]:
    """Reads the packages that are committed at a revision, whether or not a build made them.

    Returns:
        The commit, and for each folder in the output folder: path in the folder -> bytes.
    """
    place = next(folder for folder in (generated, *generated.parents) if folder.is_dir())
    find_repository_root(place)
    commit = find_commit(place, revision)
    folder = generated.relative_to(place).as_posix()
    packages: dict[str, dict[str, bytes]] = {}
    files = read_files_at(place, commit, [folder])
    files = {path if folder == "." else path.removeprefix(f"{folder}/"): data for path, data in files.items()}
    for path, data in files.items():
        name, _, inner = path.partition("/")
        if inner:
            packages.setdefault(name, {})[inner] = data
    with suppress(ValueError, RecursionError):  # a damaged packages.lock has no locks
        for name, lock in parse_locks(files.get(LOCKS, b"").decode()).items():
            packages.setdefault(name, {})[LOCK] = lock.encode()
    return commit, packages


def read_files_at(folder: Path, commit: str, below: Sequence[str]) -> dict[str, bytes]:
    """Reads the files below some folders of a folder at a commit: path -> bytes."""
    blobs: dict[str, str] = {}
    for entry in list_paths(folder, "ls-tree", "-r", commit, "--", *below, code=None):
        about, _, path = entry.partition("\t")
        _, kind, blob = about.split(" ")
        if kind == "blob":
            blobs[path] = blob
    names, contents, start = sorted({*blobs.values()}), dict[str, bytes](), 0
    output = run_git(folder, "cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
    for name in names:
        end = output.index(b"\n", start)
        size = int(output[start:end].split(b" ")[2])
        contents[name] = output[end + 1 : end + 1 + size]
        start = end + 1 + size + 1
    return {path: contents[blob] for path, blob in blobs.items()}


def find_index_faults(folder: Path, check_staged: bool) -> Iterator[IndexFault]:
    """Finds faults in git's index of the files below a folder; none if the folder is in no repository.

    Args:
        check_staged: also compares staged content, and the effect of attributes, with the disk.
    """
    if not folder.is_dir() or not any(os.path.lexists(place / ".git") for place in (folder, *folder.parents)):
        return
    changed = {*list_diff(folder)} if check_staged else set[str]()
    for entry in list_paths(folder, "ls-files", "--stage", "-v"):
        about, _, path = entry.partition("\t")
        tag, mode, blob = about.split(" ")[:3]
        name = shlex.quote(display_path(folder / path))
        if any(map(is_cache, path.split("/"))):
            reason = "is tracked by git, and has the name of a cache or of a hidden file, which nobody looks at"
            yield IndexFault(path, True, reason, f"git rm --cached -- {name}")
        elif mode != PLAIN:
            kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(mode, f"a file of mode {mode}")
            fix = f"chmod 644 {name} && git add --chmod=-x -- {name}" if mode == "100755" else f"git add -- {name}"
            yield IndexFault(path, False, f"is {kind} in git, and not a plain file of mode {PLAIN}", fix)
        elif tag == "S" or tag.islower():
            reason = "is marked assume-unchanged or skip-worktree: git does not show how it differs from the commit"
            marks = [f"git update-index --no-{mark} -- {name}" for mark in ("assume-unchanged", "skip-worktree")]
            yield IndexFault(path, False, reason, " && ".join(marks))
        elif check_staged and path not in changed and not _has_blob_hash((folder / path).read_bytes(), blob):
            reason = "has other bytes in git than on disk, by an attribute (filter, ident, working-tree-encoding)"
            yield IndexFault(path, False, reason, f"git check-attr -a -- {name}")
    for path in sorted(changed.intersection(list_diff(folder, "--cached"))) if check_staged else ():
        fix = f"git add -- {shlex.quote(display_path(folder / path))}"
        yield IndexFault(path, False, "is staged with another content than on disk", fix)


def _has_blob_hash(data: bytes, blob: str) -> bool:
    """Returns whether git gives these bytes this hash, with the line ends of Windows or with plain ones."""
    new = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    texts = data, data.replace(b"\r\n", b"\n")
    return blob in {new(b"blob %d\0%b" % (len(text), text)).hexdigest() for text in texts}
