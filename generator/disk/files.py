"""Reads the disk without trusting it: follows no link, waits for no pipe."""

from __future__ import annotations

import hashlib
import os
import stat
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from generator.errors import LoomError
from generator.recipe import files

# left behind by Python, pip and tools, and commonly ignored by git; a .pyc elsewhere runs like a module
CACHES = (".*", "__pycache__", "*.egg-info")
GONE = "is gone"


def sha256(data: bytes) -> str:
    """Returns the digest of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def kind_of(path: Path) -> str:
    """Returns "file", "folder", "symbolic link" or another kind, and "" if the path does not exist."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "pipe, socket or device")


def display_path(path: Path) -> str:
    """Returns a path for messages: relative to the working directory or absolute, whichever is shorter."""
    return min(os.path.relpath(path), os.path.abspath(path), key=len)


def read_plain_file(path: Path, remedy: str = "Make it a file of UTF-8 text that you may read.") -> str:
    """Reads the text of a plain file, and keeps its line ends."""
    if (kind := kind_of(path)) != "file":
        raise LoomError(f"is a {kind}, not a file" if kind else GONE, display_path(path), remedy)
    return files.read_text(path, display_path(path), remedy)


def read_if_file(path: Path) -> bytes:
    """Reads the bytes of a plain file; returns none for anything else."""
    return path.read_bytes() if kind_of(path) == "file" else b""


def is_cache(name: str) -> bool:
    """Returns whether a name is that of a cache or of a hidden file."""
    return any(fnmatch(name, pattern) for pattern in CACHES)


def list_entries(folder: Path) -> list[str]:
    """Lists the sorted paths below a folder except folders and caches; includes links to folders."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error  # os.walk would skip an unreadable folder

    paths = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = [name for name in folders if not is_cache(name)]
        paths += [Path(parent, name).relative_to(folder).as_posix() for name in names + links if not is_cache(name)]
    return sorted(paths)


def list_files(folder: Path) -> list[str]:
    """Lists the sorted paths of the files below a folder, without caches."""
    return [path for path in list_entries(folder) if (folder / path).is_file()]


def check_relative_path(path: str) -> None:
    """Refuses a path that leads out of its folder, or that is not in normal form.

    Raises:
        ValueError: the path is one of these.
    """
    parts = PurePosixPath(path).parts
    if path != "/".join(parts) or not parts or ".." in parts or "\\" in path or ":" in path or not path.isprintable():
        raise ValueError(f"{path!r} is not a path inside the folder")
