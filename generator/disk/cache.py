"""Caches slow results in the user's cache folder, by a digest of their inputs.

A missing, damaged or unwritable entry is only computed again. Several processes may share the cache.
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

MOST_BYTES = 256 * 2**20  # beyond this, the least recently used entries are removed


def cache_folder() -> Path:
    """Returns $XDG_CACHE_HOME/loomax, or ~/.cache/loomax."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~"), ".cache")) / "loomax"


def cache_key(*parts: Any) -> str:
    """Returns the digest of JSON values."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


def load(kind: str, key: str) -> Any:
    """Returns the cached JSON value, or None."""
    path = cache_folder() / kind / key
    with suppress(OSError, ValueError, zlib.error):  # zlib verifies a checksum
        value = json.loads(zlib.decompress(path.read_bytes()))
        os.utime(path)
        return value
    return None


def store(kind: str, key: str, value: Any) -> None:
    """Caches a JSON value. The replacement is atomic: a reader gets the whole value or None."""
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
    """Removes the least recently used entries until the cache is at most MOST_BYTES."""
    with suppress(OSError):
        entries = [(path.stat(), path) for path in cache_folder().glob("*/*") if path.is_file()]
        total = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime):
            if total <= MOST_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= status.st_size
