"""Looks at the disk without trusting it: a link is not followed, a pipe is not waited for."""

from __future__ import annotations

import hashlib
import os
import stat
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from generator.errors import LoomError
from generator.recipe import files

# what Python, pip and tools leave behind, and what git ignores by habit; a .pyc elsewhere runs like a module
CACHES = (".*", "__pycache__", "*.egg-info")


GONE = "is gone"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def kind_of(path: Path) -> str:
    """What stands at a path: a file, a folder, a symbolic link or something else; '' where there is nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "pipe, socket or device")


def display_path(path: Path) -> str:
    """A path as messages give it: from the working directory or from the root, whichever is shorter."""
    return min(os.path.relpath(path), os.path.abspath(path), key=len)


def read_plain_file(path: Path, remedy: str = "Make it a file of UTF-8 text that you may read.") -> str:
    """The text of a plain file, with the line ends that it has."""
    if (kind := kind_of(path)) != "file":
        raise LoomError(f"is a {kind}, not a file" if kind else GONE, display_path(path), remedy)
    return files.read_text(path, display_path(path), remedy)


def is_cache(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in CACHES)


def entries_below(folder: Path) -> list[str]:
    """Sorted paths below a folder of all that is neither a folder nor a cache; a link to a folder is one of them."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error  # os.walk would pass over what it may not read

    result = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if not is_cache(name)]
        result += [Path(place, name).relative_to(folder).as_posix() for name in names + links if not is_cache(name)]
    return sorted(result)


def files_below(folder: Path) -> list[str]:
    """Those of the paths that are files."""
    return [path for path in entries_below(folder) if (folder / path).is_file()]


def check_inside(path: str) -> None:
    """Refuses a path that leads out of its folder.

    Raises:
        ValueError: it does, or it is not written in the plain form.
    """
    parts = PurePosixPath(path).parts
    if path != "/".join(parts) or not parts or ".." in parts or "\\" in path or ":" in path or not path.isprintable():
        raise ValueError(f"{path!r} is not a path inside the folder")
