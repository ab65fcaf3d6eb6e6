"""What took long to find out, kept by what it was found out from, in the user's cache folder.

Nothing depends on it: what is missing, damaged or may not be written is found out again. Several commands may share it.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from generator.disk.look import sha256

MOST = 256 * 2**20  # bytes; the oldest go first


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/loomax, or ~/.cache/loomax."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~"), ".cache")) / "loomax"


def cache_key(*parts: Any) -> str:
    """A key of JSON values."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


def recall(kind: str, key: str) -> Any:
    """What was kept, or None."""
    path = cache_folder() / kind / key
    with suppress(OSError, ValueError, zlib.error):
        data = path.read_bytes()
        digest, _, packed = data.partition(b"\n")
        if digest.decode() == sha256(packed):
            os.utime(path)
            return json.loads(zlib.decompress(packed))
    return None


def keep(kind: str, key: str, value: Any) -> None:
    """Keeps a JSON value. A reader sees all of it or nothing."""
    packed = zlib.compress(json.dumps(value).encode(), 1)
    with suppress(OSError):
        folder = cache_folder() / kind
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".half-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sha256(packed).encode() + b"\n" + packed)
            os.replace(name, folder / key)
        except OSError:
            os.unlink(name)
            raise


def prune() -> None:
    """Drops what nobody asked for longest, where there is too much."""
    with suppress(OSError):
        found = [(path.stat(), path) for path in cache_folder().glob("*/*") if path.is_file()]
        total = sum(about.st_size for about, _ in found)
        for about, path in sorted(found, key=lambda it: it[0].st_mtime):
            if total <= MOST:
                break
            path.unlink(missing_ok=True)
            total -= about.st_size
