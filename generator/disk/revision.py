"""The packages and their sources as git has them at a revision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from generator.disk.git import git
from generator.disk.lock import LOCK, LOCKS, split_locks
from generator.disk.look import is_cache, show
from generator.disk.project import Project
from generator.errors import LoomError


def packages_at(project: Project, revision: str) -> tuple[str, dict[str, dict[str, bytes]]]:
    """The commit, and for each folder below the output folder its files at that revision: path in the folder -> bytes.

    It is what is committed, which people have and review, whether or not a build made it.
    """
    shown = show(project.generated)
    place = next(folder for folder in (project.generated, *project.generated.parents) if folder.is_dir())
    top = Path(os.fsdecode(git(place, "rev-parse", "--show-toplevel", code=None)).rstrip("\n"))
    if not top.is_absolute():
        raise LoomError("is in no git repository", shown, "Run gen diff --against where git has the packages.")
    prefix = git(place, "rev-parse", "--show-prefix").rstrip(b"\n")
    below = project.generated.relative_to(place).as_posix()
    folder = os.fsdecode(prefix) + (f"{below}/" if below != "." else "")
    named = f"{revision}^{{commit}}"
    commit = git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", named, code=None).decode().strip()
    if not commit:
        remedy = "Name a commit, a branch or a tag; git log and git branch list them."
        raise LoomError(f"there is no revision {revision!r}", show(top), remedy)
    listed = git(top, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *([folder] if folder else []))
    blobs: dict[str, bytes] = {}
    locks = b""
    for entry in listed.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        _, kind, blob = about.split(b" ")
        inner = os.fsdecode(path).removeprefix(folder)
        if kind == b"blob" and "/" in inner:
            blobs[inner] = blob
        elif kind == b"blob" and inner == LOCKS:
            locks = blob
    contents = _read(top, sorted({*blobs.values(), *filter(None, [locks])}))
    result: dict[str, dict[str, bytes]] = {}
    for inner, blob in blobs.items():
        package, file = inner.split("/", 1)
        result.setdefault(package, {})[file] = contents[blob]
    for name, lock in locks_of(contents.get(locks, b"")).items():
        result.setdefault(name, {})[LOCK] = lock
    return commit, result


def locks_of(data: bytes) -> dict[str, bytes]:
    """Name -> lock of the packages that are not committed, by packages.lock; none where it cannot be read."""
    with suppress(ValueError, RecursionError):
        return {name: lock.encode() for name, lock in split_locks(data.decode()).items()}
    return {}


def sources_at(root: Path, commit: str, folders: Sequence[str]) -> dict[str, bytes]:
    """The files below some folders of a root at a commit, by their paths; none where git has none of them."""
    listed = git(root, "ls-tree", "-r", "-z", commit, "--", *folders, code=None)
    blobs: dict[str, bytes] = {}
    for entry in listed.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        _, kind, blob = about.split(b" ")
        if kind == b"blob" and not any(is_cache(part) for part in os.fsdecode(path).split("/")):
            blobs[os.fsdecode(path)] = blob
    contents = _read(root, sorted(set(blobs.values())))
    return {path: contents[blob] for path, blob in blobs.items()}


def _read(top: Path, names: list[bytes]) -> dict[bytes, bytes]:
    """The contents of blobs by their names."""
    given = b"".join(name + b"\n" for name in names)
    found, contents, start = git(top, "cat-file", "--batch", given=given), {}, 0
    for name in names:
        end = found.index(b"\n", start)
        size = int(found[start:end].split(b" ")[2])
        contents[name] = found[end + 1 : end + 1 + size]
        start = end + 1 + size + 1
    return contents
