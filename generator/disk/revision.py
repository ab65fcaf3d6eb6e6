"""The packages as git has them at a revision."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from generator.disk.look import show
from generator.disk.project import Project
from generator.errors import LoomError


def packages_at(project: Project, revision: str) -> tuple[str, dict[str, dict[str, bytes]]]:
    """The commit, and for each folder below the output folder its files at that revision: path in the folder -> bytes.

    It is what is committed, which people have and review, whether or not a build made it.
    """
    shown = show(project.generated)
    place = next(folder for folder in (project.generated, *project.generated.parents) if folder.is_dir())
    try:
        top = Path(os.fsdecode(_git(place, "rev-parse", "--show-toplevel")).rstrip("\n"))
        prefix = _git(place, "rev-parse", "--show-prefix").rstrip(b"\n")
    except subprocess.CalledProcessError:
        raise LoomError(
            "is in no git repository", shown, "Run gen diff --against where git has the packages."
        ) from None
    below = project.generated.relative_to(place).as_posix()
    folder = os.fsdecode(prefix) + (f"{below}/" if below != "." else "")
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode()
    except subprocess.CalledProcessError:
        remedy = "Name a commit, a branch or a tag; git log and git branch list them."
        raise LoomError(f"there is no revision {revision!r}", show(top), remedy) from None
    commit = commit.strip()
    listed = _git(top, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *([folder] if folder else []))
    blobs: dict[str, bytes] = {}
    for entry in listed.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        _, kind, blob = about.split(b" ")
        inner = os.fsdecode(path).removeprefix(folder)
        if kind == b"blob" and "/" in inner:
            blobs[inner] = blob
    contents = _read(top, sorted(set(blobs.values())))
    result: dict[str, dict[str, bytes]] = {}
    for inner, blob in blobs.items():
        package, file = inner.split("/", 1)
        result.setdefault(package, {})[file] = contents[blob]
    return commit, result


def _read(top: Path, names: list[bytes]) -> dict[bytes, bytes]:
    """The contents of blobs by their names."""
    given = b"".join(name + b"\n" for name in names)
    found, contents, start = _git(top, "cat-file", "--batch", given=given), {}, 0
    for name in names:
        end = found.index(b"\n", start)
        size = int(found[start:end].split(b" ")[2])
        contents[name] = found[end + 1 : end + 1 + size]
        start = end + 1 + size + 1
    return contents


def _git(folder: Path, *words: str, given: bytes | None = None) -> bytes:
    try:
        ran = subprocess.run(["git", "-C", str(folder), *words], input=given, capture_output=True, check=True)
    except FileNotFoundError:
        raise LoomError(
            "git is not installed", remedy="Install git: gen diff --against reads revisions by it."
        ) from None
    return ran.stdout
