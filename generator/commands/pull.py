"""Carries the edits of a package back to the fragments, and builds what they change."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, NamedTuple

from generator.code.hunks import hunks
from generator.commands.findings import is_own, own_paths
from generator.commands.packages import Asked, each_package
from generator.commands.pull_as import Wish, named, of_gen, read_wish, take_heads, with_offers, with_own
from generator.disk.built import BASE, dump_base, find_package
from generator.disk.lock import LOCK, MAP, Combination, Fingerprints
from generator.disk.look import entries_below, kind_of, sha256, show
from generator.disk.parallel import in_parallel
from generator.disk.project import Project
from generator.disk.status import compare
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError
from generator.package.package import Package
from generator.pull.apart import Own
from generator.pull.edited import find_edits
from generator.pull.offered import check_offers
from generator.pull.pull import Pulled, pull
from generator.recipe.library import Library


class Other(NamedTuple):
    """Another package that the changed fragments change.

    Attributes:
        files, lines: how many of them.
        edited: files that someone changed, which a build would not write over.
    """

    name: str
    files: int
    lines: int
    edited: tuple[str, ...]


class Found(NamedTuple):
    """What a pull does, before anything is written."""

    asked: Asked
    pulled: Pulled
    others: list[Other]
    own: Own | None = None

    def diff(self, project: Project) -> str:
        """The unified diff of the fragments."""
        texts = project.library().files
        return "".join(
            line if line.endswith("\n") else f"{line}\n"
            for path, after in self.pulled.texts.items()
            for line in difflib.unified_diff(
                texts.get(path, "").splitlines(True),
                after.splitlines(True),
                f"a/{path}" if path in texts else "/dev/null",
                f"b/{path}",
            )
        )


def find(project: Project, word: str, wish: Wish | None = None) -> Found:
    """What pulling a package would do.

    Args:
        word: its name or its folder.
        wish: for a fragment that its architecture alone selects.
    """
    built = find_package(project, word)
    combination = built.lock.combination
    asked = Asked(project, combination, Fingerprints(project.roots), built.folder.resolve().parent)
    if built.folder.name != combination.name and built.folder.resolve().name != combination.name:
        raise LoomError(
            f"is a copy of {combination.name}", built.shown, f"Give the folder the name {combination.name}."
        )
    package = asked.package()
    late = [path for path, text in package.files.items() if sha256(text.encode()) != built.lock.outputs.get(path)]
    if late or built.lock.outputs.keys() - package.files.keys() - {MAP}:
        remedy = f"Take in what they bring: gen update {word}; then pull again."
        raise LoomError("its fragments changed since it was built", f"{built.shown}/{(late or [LOCK])[0]}", remedy)
    there = _on_disk(asked)
    edited, own = find_edits(package.files, there), read_wish(project, combination, wish) if wish else None
    apart = named(wish, package, edited, asked.folder) if wish else []
    at_home = edited._replace(hunks=[hunk for hunk in edited.hunks if hunk not in apart])

    def weave(library: Library) -> Package:
        made = asked.package(library)
        check_offers(project.library(), library)
        return made

    def closed(path: str) -> str:
        return "" if (project.root / path).is_file() else _instead(project, combination)

    pulled = pull(package, at_home, project.library(), weave, closed)
    others = _others(project, combination, pulled.texts) if pulled.texts else []
    pulled = with_own(asked, pulled, there, own, apart) if own else with_offers(asked, pulled, there)
    return Found(asked, pulled, others, own)


def _on_disk(asked: Asked) -> dict[str, bytes | str]:
    """What is in the folder of a package, without what gen keeps there for itself and what is named as one's own."""
    own = own_paths(asked.project)
    found: dict[str, bytes | str] = {}
    for path in entries_below(asked.folder):
        kind = kind_of(asked.folder / path)
        if path not in (LOCK, MAP, BASE) and not is_own(f"{asked.combination.name}/{path}", own):
            found[path] = (asked.folder / path).read_bytes() if kind == "file" else kind
    return found


def _instead(project: Project, combination: Combination) -> str:
    """What to do with an edit of a fragment that comes with gen."""
    if (project.root / f"templates/architectures/{combination.architecture}.toml").is_file():
        return f"Keep it in the package: gen own {combination.name}."
    return of_gen(combination)


def _others(project: Project, combination: Combination, texts: dict[str, str]) -> list[Other]:
    prints = Fingerprints(project.roots)
    kept = [c for c in project.packages() if c != combination and c not in project.by_hand()]
    asked = [Asked(project, c, prints, project.generated) for c in kept]
    rows = [(one, texts) for one in asked]
    result = []
    for one, other in zip(asked, in_parallel(_other, rows, [one.uses(texts) for one in asked]), strict=True):
        if isinstance(other, LoomError):
            remedy = f"Change the fragments by hand so that both can be woven. {other.remedy or ''}".strip()
            raise LoomError(
                f"with these changes {one.combination.name} cannot be woven: {other.message}", other.where, remedy
            )
        if other:
            result.append(other)
    return result


def _other(asked: Asked, texts: dict[str, str]) -> Other | None:
    """What a build would then change in another package; None where nothing."""
    if not asked.uses(texts) or not (kind_of(asked.folder) or asked.only_lock):
        return None
    made = asked.package(asked.project.library().with_texts(texts)).files
    wanted = {path: sha256(text.encode()) for path, text in made.items()}
    found = compare(asked.folder, asked.combination, wanted, asked.only_lock)
    woven = asked.package().files if asked.only_lock else {}  # what the lock stands for
    changed = [path for path in [*found.write, *found.remove] if path not in (LOCK, MAP)]
    if not changed:
        return None
    lines = 0
    for path in changed:
        data = (asked.folder / path).read_bytes() if kind_of(asked.folder / path) == "file" else b""
        data = woven[path].encode() if path in woven else data
        old, new = data.decode(errors="replace").split("\n"), made.get(path, "").split("\n")
        lines += sum(max(len(hunk.before), len(hunk.after)) for hunk in hunks(old, new))
    return Other(asked.combination.name, len(changed), lines, tuple(file.path for file in found.blocked))


def apply(project: Project, found: Found) -> list[tuple[str, Any]]:
    """Writes the fragments, then builds: the package itself keeps the edits that did not go home.

    Returns:
        For each other package its name, and what building it gave.
    """
    if edited := [other for other in found.others if other.edited]:
        names = ", ".join(f"{other.name} ({', '.join(other.edited)})" for other in edited)
        remedy = "Pull or give up those edits first; nothing was written."
        raise LoomError(f"these fragments also make packages that were edited too: {names}", None, remedy)
    for path, text in found.pulled.texts.items():
        _write(project.root / path, text)
    project.forget_library()
    asked = Asked(project, found.asked.combination, Fingerprints(project.roots), found.asked.out)
    made = asked.woven()
    if found.own:
        take_heads(asked.folder, found.pulled.package.files, made)
    if asked.by_hand:  # what is merged next comes on top of this
        replace_file(asked.folder, BASE, dump_base(made))
    write_records(asked.folder, made)
    return list(each_package(Asked.build, project, False, False, True))


def _write(path: Path, text: str) -> None:
    """Writes a source, with the line ends that it has."""
    data = text.encode()
    if path.exists() and b"\r\n" in path.read_bytes():
        data = data.replace(b"\n", b"\r\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)


def refused(found: Found) -> list[dict[str, object]]:
    """The refusals, each with its place."""
    shown = show(found.asked.folder)
    return [
        {
            "place": f"{shown}/{one.path}:{one.line}" if one.line else f"{shown}/{one.path}",
            "reason": one.reason,
            "remedy": one.remedy,
        }
        for one in found.pulled.refusals
    ]


def report(found: Found) -> list[str]:
    """Gives what a person is told, except the diff."""
    shown, home, refusals = show(found.asked.folder), len(found.pulled.home), refused(found)
    if not home and not refusals:
        return [f"{shown}: no edits"]
    count = sum(path.startswith("fragments/") for path in found.pulled.texts)
    to = f", to {count} fragment{'' if count == 1 else 's'}" if count else ""
    lines = [f"{shown}: {home} of {home + len(refusals)} edits go home{to}"]
    if found.own:
        table = f"[{'.'.join(found.own.table)}] of " if found.own.table else ""
        file = f"templates/architectures/{found.asked.combination.architecture}.toml"
        lines.append(f"{found.own.path} is new: {table}{file} selects it, and no other package changes for it")
        if heirs := ", ".join(found.own.heirs):
            keep = f'without = ["{found.own.name}"] in their files keeps it out'
            lines.append(f"{heirs}, built for the same, would get it too, as this is their base: {keep}")
    alike: dict[str, list[str]] = {}
    for other in found.others:
        plural = "" if other.lines == 1 else "s"
        alike.setdefault(f"{other.lines} line{plural}", []).append(other.name)
        if other.edited:
            lines.append(f"{other.name} was edited too ({', '.join(other.edited)}): --apply will refuse")
    lines += [f"also changes {count} of {', '.join(names)}" for count, names in alike.items()]
    for one in refusals:
        lines.append(f"refused  {one['place']}: {one['reason']}\n         {one['remedy']}")
    return lines
