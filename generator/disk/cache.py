"""Keeps results that took long in the user's cache folder, by what they were made from.

Nothing depends on it: what is missing, damaged or may not be written is made again. Several commands may share it.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from generator.disk.files import sha256

MOST_BYTES = 256 * 2**20  # the oldest entries go first


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/loomax, or ~/.cache/loomax."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~"), ".cache")) / "loomax"


def cache_key(*parts: Any) -> str:
    """A key of JSON values."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


def load(kind: str, key: str) -> Any:
    """The JSON value that was kept, or None."""
    path = cache_folder() / kind / key
    with suppress(OSError, ValueError, zlib.error):  # zlib checks a sum of its own
        value = json.loads(zlib.decompress(path.read_bytes()))
        os.utime(path)
        return value
    return None


def store(kind: str, key: str, value: Any) -> None:
    """Keeps a JSON value. A reader sees all of it or nothing."""
    with suppress(OSError):
        folder = cache_folder() / kind
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".half-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(zlib.compress(json.dumps(value).encode(), 1))
            os.replace(name, folder / key)
        except OSError:
            os.unlink(name)
            raise


def prune() -> None:
    """Drops the entries that nobody asked for longest, where there are too many."""
    with suppress(OSError):
        found = [(path.stat(), path) for path in cache_folder().glob("*/*") if path.is_file()]
        total = sum(about.st_size for about, _ in found)
        for about, path in sorted(found, key=lambda it: it[0].st_mtime):
            if total <= MOST_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= about.st_size
