"""The text of packages as it is woven now, or was at a revision, whatever is on disk; kept for the next time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator.commands import packages
from generator.commands.packages import Asked
from generator.disk.cache import cache_key, keep, recall
from generator.disk.git import git, sources_at
from generator.disk.lock import LOCK, Combination, Fingerprints, Lock, parse_lock, read_lock, with_records
from generator.disk.look import files_below, sha256
from generator.disk.parallel import in_parallel
from generator.disk.project import Project
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.recipe.library import Library

FOLDERS = ("fragments", "templates", "targets")
Files = dict[str, bytes]  # path in the package -> bytes; the map is among them, the lock is not
Say = Callable[[str], None]
# the sources that a library reads
_READ = (".py", ".toml", ".jinja")


class Sides(NamedTuple):
    """A package before and after.

    Attributes:
        before: its files, the map included, None where it was not there.
        unknown: of the files that differ those whose text before is not known.
    """

    combination: Combination
    before: Files | None
    after: Files
    unknown: Collection[str] = ()


def woven_now(asked: Sequence[Asked], say: Say = lambda _: None) -> list[Files | LoomError]:
    """The files of packages as they are woven now."""
    if not asked:
        return []
    key = library_key(_sources_now(asked[0].project.roots), asked[0].prints)
    return _woven([it.combination for it in asked], key, _weave, [(it,) for it in asked], say)


def with_texts(
    project: Project,
    commit: str,
    pairs: list[tuple[Combination, Files | None, Files]],
    prints: Fingerprints,
    say: Say,
) -> list[Sides]:
    """The sides of packages; of those that were not committed what differs is woven from the sources at the commit."""
    locks = {combination.name: _lock_alone(before) for combination, before, _ in pairs}
    other = {
        combination.name: lock
        for combination, _, after in pairs
        if (lock := locks[combination.name]) and _differing(lock, after)
    }
    texts = dict(zip(other, _woven_at(project, commit, list(other.values()), prints, say), strict=True))
    result = []
    for combination, before, after in pairs:
        unknown: list[str] = []
        if lock := locks[combination.name]:
            paths, made = _differing(lock, after), texts.get(combination.name, {})
            before = {path: after[path] for path in lock.outputs if path not in paths} | made
            unknown = [path for path in paths if path in lock.outputs and path not in made]
        result.append(Sides(combination, before, after, unknown))
    return result


def _lock_alone(files: Files | None) -> Lock | None:
    """The lock of a package that had no other file."""
    try:
        lock = parse_lock(files[LOCK].decode()) if files and LOCK in files else None
    except (ValueError, RecursionError):
        return None
    return lock if lock and files and not files.keys() & lock.outputs.keys() else None


def _differing(lock: Lock, files: Files) -> set[str]:
    """The paths at which a lock names other files than these."""
    paths = lock.outputs.keys() | files.keys()
    return {path for path in paths if path not in files or sha256(files[path]) != lock.outputs.get(path)}


def woven_before(asked: Asked) -> Files:
    """Of the files that the lock on disk names those that the sources of the last commit make."""
    place = next(folder for folder in (asked.folder, *asked.folder.parents) if folder.is_dir())
    commit = git(place, "rev-parse", "--verify", "--quiet", "HEAD", code=None).decode().strip()
    try:
        lock = read_lock(asked.folder, asked.combination)
        return _woven_at(asked.project, commit, [lock], asked.prints, lambda _: None)[0] if commit else {}
    except LoomError:
        return {}


def _woven_at(project: Project, commit: str, locks: Sequence[Lock], prints: Fingerprints, say: Say) -> list[Files]:
    """Of the files that locks name those that the sources at a commit make, by the generator that is here."""
    if not locks:
        return []
    key = library_key(_sources_at(project.roots, commit), prints)
    rows = [(project.roots, commit, lock.combination, prints) for lock in locks]
    made = _woven([lock.combination for lock in locks], key, _weave_at, rows, say)
    return [
        {} if isinstance(files, LoomError) else _named(files, lock) for files, lock in zip(made, locks, strict=True)
    ]


def _named(files: Files, lock: Lock) -> Files:
    return {path: data for path, data in files.items() if sha256(data) == lock.outputs.get(path)}


def _woven(
    combinations: Sequence[Combination], library: str, job: Callable, rows: Sequence[tuple], say: Say
) -> list[Files | LoomError]:
    """What was kept, or what a job makes."""
    keys = [cache_key(library, combination) for combination in combinations]
    known = [recall("woven", key) for key in keys]
    waiting = [row for row, found in zip(rows, known, strict=True) if found is None]
    if waiting:
        say(f"weaves {len(waiting)} package{'' if len(waiting) == 1 else 's'}")
    made, result = iter(in_parallel(job, waiting, [True] * len(waiting))), list[Files | LoomError]()
    for key, found in zip(keys, known, strict=True):
        texts = next(made) if found is None else found
        if found is None and not isinstance(texts, LoomError):
            keep("woven", key, texts)
        result.append(texts if isinstance(texts, LoomError) else {path: it.encode() for path, it in texts.items()})
    return result


def _weave(asked: Asked) -> dict[str, str]:
    return _texts(asked.woven())


def _weave_at(roots: tuple[Path, ...], commit: str, made: Combination, prints: Fingerprints) -> dict[str, str]:
    package = packages.weave(made.architecture, made.target, _library_at(roots, commit), made.parts)
    return _texts(with_records(package, prints))


def _texts(files: Files) -> dict[str, str]:
    return {path: data.decode() for path, data in files.items() if path != LOCK}


def library_key(sources: dict[str, bytes], prints: Fingerprints) -> str:
    """A hash of all that weaving reads."""
    return cache_key({path: sha256(data) for path, data in sources.items()}, prints.generator, prints.tools)


def _sources_now(roots: tuple[Path, ...]) -> dict[str, bytes]:
    """The number of its root and the path of each source -> bytes."""
    return {f"{number}/{path}": data for number, root in enumerate(roots) for path, data in _on_disk(root)}


@lru_cache(maxsize=2)
def _sources_at(roots: tuple[Path, ...], commit: str) -> dict[str, bytes]:
    """The same at a commit; of a root that git does not have, as it is on disk."""
    return {
        f"{number}/{path}": data
        for number, root in enumerate(roots)
        for path, data in (sources_at(root, commit, FOLDERS) or dict(_on_disk(root))).items()
    }


def _on_disk(root: Path) -> Iterable[tuple[str, bytes]]:
    for folder in FOLDERS:
        for path in files_below(root / folder) if (root / folder).is_dir() else ():
            yield f"{folder}/{path}", (root / folder / path).read_bytes()


@lru_cache(maxsize=2)
def _library_at(roots: tuple[Path, ...], commit: str) -> Library:
    from generator.recipe.library import Library  # late: it imports libcst

    files = {path.partition("/")[2]: data for path, data in _sources_at(roots, commit).items()}
    names = [path for path in files if path.endswith(_READ) and not path.endswith("__init__.py")]
    return Library({path: files[path].decode("utf-8", "replace") for path in names})
