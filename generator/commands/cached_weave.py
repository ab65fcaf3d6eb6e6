"""Weaves packages from the sources on disk or at a commit, whatever packages are on disk; caches the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from generator.commands.packages import PackageBuilder
from generator.disk.cache import cache_key, load, store
from generator.disk.files import is_cache, list_files, sha256
from generator.disk.git import read_files_at, run_git
from generator.disk.lock import LOCK, encode_package, read_lock
from generator.disk.parallel import run_parallel
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.recipe.library import Library

FOLDERS = ("fragments", "templates", "targets")
Files = dict[str, bytes]  # path in the package -> bytes, including the map but not the lock
Say = Callable[[str], None]


def weave_cached(
    builders: Sequence[PackageBuilder], say: Say = lambda _: None, commit: str = ""
) -> list[Files | LoomError]:
    """Returns the files of packages as this gen weaves them from the sources on disk, or at a commit."""
    if not builders:
        return []
    roots, digests = builders[0].project.roots, builders[0].digests
    hashes = {path: sha256(data) for path, data in _read_sources(roots, commit).items()}
    keys = [cache_key(hashes, digests.generator, digests.tools, builder.combination) for builder in builders]
    results = {key: load("woven", key) for key in keys}
    missing = {key: (builder, commit) for key, builder in zip(keys, builders, strict=True) if results[key] is None}
    if missing:
        say(f"weaves {len(missing)} package{'' if len(missing) == 1 else 's'}")
    woven = run_parallel(_weave_texts, list(missing.values()), [True] * len(missing))
    for key, texts in zip(missing, woven, strict=True):
        results[key] = texts
        if not isinstance(texts, LoomError):
            store("woven", key, texts)
    return [
        texts if isinstance(texts, LoomError) else {path: text.encode() for path, text in texts.items()}
        for texts in (results[key] for key in keys)
    ]


def recover_locked_files(builder: PackageBuilder) -> Files:
    """Returns the files with the digests of the lock on disk that the sources of the last commit make."""
    place = next(folder for folder in (builder.folder, *builder.folder.parents) if folder.is_dir())
    commit = run_git(place, "rev-parse", "--verify", "--quiet", "HEAD", code=None).decode().strip()
    try:
        outputs = read_lock(builder.folder, builder.combination).outputs
        files = weave_cached([builder], commit=commit)[0] if commit else {}
    except LoomError:
        return {}
    if isinstance(files, LoomError):
        return {}
    return {path: data for path, data in files.items() if sha256(data) == outputs.get(path)}


def _weave_texts(builder: PackageBuilder, commit: str) -> dict[str, str]:
    package = builder.weave(_read_library_at(builder.project.roots, commit) if commit else None)
    return {path: data.decode() for path, data in encode_package(package, builder.digests).items() if path != LOCK}


@lru_cache(maxsize=2)
def _read_library_at(roots: tuple[Path, ...], commit: str) -> Library:
    from generator.recipe.library import Library  # imported late: it imports all of weaving

    sources = _read_sources(roots, commit)
    files = {path.partition("/")[2]: data for path, data in sources.items()}
    builtin = {path[2:] for path in sources if path.startswith("0/")}
    names = [name for name in files if name.endswith((".py", ".toml", ".jinja")) and not name.endswith("__init__.py")]
    return Library({name: files[name].decode("utf-8", "replace") for name in names}, builtin)


def _read_sources(roots: tuple[Path, ...], commit: str) -> Files:
    """Reads every input of weaving: number of its root/path -> bytes.

    Args:
        commit: is "" for the disk. A root that git does not track at the commit is read from the disk too.
    """
    return {
        f"{number}/{path}": data
        for number, root in enumerate(roots)
        for path, data in ((commit and read_files_at(root, commit, FOLDERS)) or dict(read_disk_sources(root))).items()
        if not any(map(is_cache, path.split("/")))
    }


def read_disk_sources(root: Path) -> Iterator[tuple[str, bytes]]:
    """Reads every input of weaving below a root: path, bytes."""
    for folder in FOLDERS:
        for path in list_files(root / folder) if (root / folder).is_dir() else ():
            yield f"{folder}/{path}", (root / folder / path).read_bytes()
