"""Gives the text of packages as it is woven now, or at a commit, whatever is on disk; cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from generator.commands.packages import PackageBuilder
from generator.disk.cache import cache_key, load, store
from generator.disk.files import files_below, sha256
from generator.disk.git import git, sources_at
from generator.disk.lock import LOCK, read_lock, with_records
from generator.disk.parallel import in_parallel
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.recipe.library import Library

FOLDERS = ("fragments", "templates", "targets")
Files = dict[str, bytes]  # path in the package -> bytes; the map is among them, the lock is not
Say = Callable[[str], None]


def woven(builders: Sequence[PackageBuilder], say: Say = lambda _: None, commit: str = "") -> list[Files | LoomError]:
    """Returns the files of packages as this gen weaves them from the sources of now, or of a commit."""
    if not builders:
        return []
    roots, prints = builders[0].project.roots, builders[0].prints
    hashes = {path: sha256(data) for path, data in _sources(roots, commit).items()}
    keys = [cache_key(hashes, prints.generator, prints.tools, it.combination) for it in builders]
    known = {key: load("woven", key) for key in keys}
    waiting = {key: (it, commit) for key, it in zip(keys, builders, strict=True) if known[key] is None}
    if waiting:
        say(f"weaves {len(waiting)} package{'' if len(waiting) == 1 else 's'}")
    made = in_parallel(_weave, list(waiting.values()), [True] * len(waiting))
    for key, texts in zip(waiting, made, strict=True):
        known[key] = texts
        if not isinstance(texts, LoomError):
            store("woven", key, texts)
    found = [known[key] for key in keys]
    return [it if isinstance(it, LoomError) else {path: text.encode() for path, text in it.items()} for it in found]


def woven_before(builder: PackageBuilder) -> Files:
    """Returns those files that the lock on disk names and that the sources of the last commit make."""
    place = next(folder for folder in (builder.folder, *builder.folder.parents) if folder.is_dir())
    commit = git(place, "rev-parse", "--verify", "--quiet", "HEAD", code=None).decode().strip()
    try:
        outputs = read_lock(builder.folder, builder.combination).outputs
        files = woven([builder], commit=commit)[0] if commit else {}
    except LoomError:
        return {}
    if isinstance(files, LoomError):
        return {}
    return {path: data for path, data in files.items() if sha256(data) == outputs.get(path)}


def _weave(builder: PackageBuilder, commit: str) -> dict[str, str]:
    package = builder.package(_library_at(builder.project.roots, commit) if commit else None)
    files = with_records(package, builder.prints)
    return {path: data.decode() for path, data in files.items() if path != LOCK}


@lru_cache(maxsize=2)
def _library_at(roots: tuple[Path, ...], commit: str) -> Library:
    from generator.recipe.library import Library  # late: it imports all of weaving

    files = {path.partition("/")[2]: data for path, data in _sources(roots, commit).items()}
    names = [it for it in files if it.endswith((".py", ".toml", ".jinja")) and not it.endswith("__init__.py")]
    return Library({path: files[path].decode("utf-8", "replace") for path in names})


def _sources(roots: tuple[Path, ...], commit: str) -> Files:
    """Returns all that weaving reads: the number of its root and the path of each source -> bytes.

    Args:
        commit: '' for what is on disk, as is a root that git does not have.
    """
    return {
        f"{number}/{path}": data
        for number, root in enumerate(roots)
        for path, data in ((commit and sources_at(root, commit, FOLDERS)) or dict(_on_disk(root))).items()
    }


def _on_disk(root: Path) -> Iterable[tuple[str, bytes]]:
    for folder in FOLDERS:
        for path in files_below(root / folder) if (root / folder).is_dir() else ():
            yield f"{folder}/{path}", (root / folder / path).read_bytes()
