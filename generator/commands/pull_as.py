"""Edits that one architecture alone gets: where their fragment goes, who else would get it, and that nobody does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from generator.commands.packages import Asked
from generator.disk.lock import Combination, Fingerprints
from generator.disk.look import kind_of, show
from generator.disk.parallel import in_parallel
from generator.disk.project import Project
from generator.disk.write import replace_file
from generator.errors import LoomError
from generator.package.package import Package
from generator.pull.apart import Own, Search
from generator.pull.edited import Edited, Hunk, Refusal, find_edits
from generator.pull.heads import split, with_head
from generator.pull.pull import Pulled, made_by_gen
from generator.pull.sources import Woven
from generator.recipe.recipe import PACKAGE_FILE, lineage_of
from generator.recipe.schema import Package as PackageFile
from generator.recipe.toml import Toml

_PATH = re.compile(r"fragments/([a-z_]\w*)/([a-z_]\w*)\.py", re.ASCII)
OF_GEN = (
    "Keep it in the package: gen own {package}. Or make it in an architecture of your own: write "
    'title = "My model" and base = "{architecture}" to templates/architectures/NAME.toml, gen build NAME '
    "--target={target}, edit that package, and gen pull NAME_{target} --as fragments/FOLDER/NAME.py."
)
OnDisk = dict[str, bytes | str]


class Wish(NamedTuple):
    """What someone asks for.

    Attributes:
        path, title: of the fragment; no title for one that says its name.
        lines: places of edits, FILE:LINE or LINE; none for all that cannot go home.
    """

    path: str
    title: str
    lines: tuple[str, ...]


def read_wish(project: Project, combination: Combination, wish: Wish) -> Own:
    """The fragment that a wish names, and the table of the architecture's file that this package alone reads."""
    match = _PATH.fullmatch(wish.path)
    if match is None or match[2] == "__init__":
        raise LoomError("is not the path of a fragment", wish.path, "Write --as fragments/FOLDER/NAME.py.")
    folders = Toml.read(project.library().files, PACKAGE_FILE, PackageFile).data.folders
    if match[1] not in folders:
        remedy = f"Take one of {', '.join(folders)}; they are under [folders] of {PACKAGE_FILE}."
        raise LoomError(f"no file of a package has fragments of {match[1]}/", wish.path, remedy)
    if wish.path in project.library().files or kind_of(project.root / wish.path):
        raise LoomError("is there already", wish.path, "Give the new fragment another name.")
    title = wish.title or f"{match[2].strip('_').replace('_', ' ').capitalize()}."
    if not title.isprintable() or not title.strip() or re.search(r'["\\]', title):
        raise LoomError("is no title", repr(title), "Write --title in one line, without quotes and backslashes.")
    title = title.strip() + "." * (title.strip()[-1] not in ".!?")
    table, architecture = _table(project, combination, wish.path), combination.architecture
    lineages = [_lineage(project, one) for one in project.library().architectures() if one != architecture]
    heirs = {one[one.index(architecture) + 1] for one in lineages if architecture in one}
    return Own(wish.path, title, table, tuple(sorted(heirs)))


def _table(project: Project, combination: Combination, path: str) -> tuple[str, ...]:
    """The top of the architecture's file, or else what it says of this target, which other targets do not get."""
    name, fragment = combination.architecture, path.removeprefix("fragments/").removesuffix(".py")
    file = f"templates/architectures/{name}.toml"
    if not (project.root / file).is_file():
        raise LoomError("is part of gen and not of this project", file, of_gen(combination))
    lineages = {c: _lineage(project, c.architecture) for c in project.packages() if c != combination}
    heirs = [c for c, lineage in lineages.items() if name in lineage]
    if not heirs:
        return ()
    same = [c for c in heirs if c.target == combination.target]
    if not same:
        return ("targets", combination.target)
    below = sorted({lineages[c][lineages[c].index(name) + 1] for c in same})
    raise LoomError(
        f"{', '.join(c.name for c in same)} would get it too: {name} is the base of {', '.join(below)}",
        f"templates/architectures/{name}.toml",
        f'Make the edit in an architecture of its own, base = "{name}". Or write the fragment by hand, and without = '
        f'["{fragment}"] in {", ".join(f"templates/architectures/{one}.toml" for one in below)}.',
    )


def of_gen(combination: Combination) -> str:
    """What to do with an edit for which gen's own files would have to change."""
    return OF_GEN.format(package=combination.name, architecture=combination.architecture, target=combination.target)


def _lineage(project: Project, architecture: str) -> list[str]:
    """The names of an architecture's bases, the first one first, and its own."""
    return [Path(file.path).stem for file in lineage_of(architecture, project.library())]


def named(wish: Wish, package: Package, edited: Edited, folder: Path) -> list[Hunk]:
    """The edits at the lines that a wish names."""
    found: list[Hunk] = []
    for said in wish.lines:
        path, _, number = said.removeprefix(f"{show(folder)}/").removeprefix(f"{folder.name}/").rpartition(":")
        path = path or (next(iter(edited.texts)) if len(edited.texts) == 1 else "")
        if not path or not number.isdecimal():
            raise LoomError("names no line", f"--line {said}", "Write FILE:LINE, as gen pull shows it.")
        hunk = next((h for h in edited.hunks if h.path == path and int(number) in _lines(h)), None)
        if hunk is None:
            places = ", ".join(f"{h.path}:{h.at}" for h in edited.hunks[:10]) or "nowhere"
            raise LoomError("was not edited", f"{show(folder)}/{path}:{number}", f"The edits stand at {places}.")
        woven = Woven(package, {})
        if path not in package.origins or made_by_gen(woven, hunk):
            why = "gen writes it" if path in package.origins else "a template makes this file"
            remedy = "Name the line that the edit is for, or change the template."
            raise LoomError(f"{why}, and no fragment", f"{show(folder)}/{path}:{number}", remedy)
        found.append(hunk)
    return found


def _lines(hunk: Hunk) -> range:
    """Its lines in the edited file, or the one below a deletion."""
    return range(hunk.at, hunk.at + max(len(hunk.lines), 1))


def with_own(asked: Asked, pulled: Pulled, there: OnDisk, own: Own, withheld: list[Hunk]) -> Pulled:
    """What was pulled, and a fragment for the edits that were named, or else for those that cannot go home."""
    library = asked.project.library().with_texts(pulled.texts)
    edited = find_edits(pulled.package.files, there)
    places = {(hunk.path, line) for hunk in withheld for line in _lines(hunk)}
    wanted = [h for h in edited.hunks if not places or places & {(h.path, line) for line in _lines(h)}]
    found = Search(pulled.package, edited, library, asked.package, own).find(wanted)
    if not found.taken or (places and found.reasons):
        shown = show(asked.folder)
        reasons = "; ".join(f"{shown}/{hunk.path}:{hunk.at}: {why}" for hunk, why in found.reasons.items())
        remedy = "Change the fragments by hand, or keep the edit in the package: gen own."
        if not found.reasons:
            reasons, remedy = "every edit can go to the fragments that it came from", "Name one: --line FILE:LINE."
        raise LoomError(f"there is nothing for this fragment: {reasons}", own.path, remedy)
    texts = {**pulled.texts, **found.texts}
    if changed := _also_changed(asked, pulled.texts, texts):
        remedy = "Write the fragment by hand, and select it where it is for."
        raise LoomError(f"it would change {', '.join(changed)} too", own.path, remedy)
    taken = {(hunk.path, line) for hunk in found.taken for line in _lines(hunk)}
    whys = {(hunk.path, hunk.at): why for hunk, why in found.reasons.items()}
    left = [_because(one, whys) for one in pulled.refusals if (one.path, one.line) not in taken]
    return Pulled(texts, pulled.package, [*pulled.home, *found.taken], left)


def _because(refusal: Refusal, whys: dict[tuple[str, int], str]) -> Refusal:
    why = whys.get((refusal.path, refusal.line))
    return refusal._replace(reason=f"{refusal.reason}; in a fragment of its own, {why}") if why else refusal


def _also_changed(asked: Asked, before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The other packages that the fragment changes."""
    project, own = asked.project, after.keys() - before.keys()
    prints = Fingerprints(project.roots)
    others = [Asked(project, c, prints, project.generated) for c in project.packages() if c != asked.combination]
    others = [other for other in others if other.uses(own)]
    found = in_parallel(_differs, [(other, before, after) for other in others], [True] * len(others))
    return [one.combination.name for one, differs in zip(others, found, strict=True) if differs]  # an error does, too


def _differs(asked: Asked, before: dict[str, str], after: dict[str, str]) -> bool:
    library = asked.project.library()
    return asked.package(library.with_texts(before)).files != asked.package(library.with_texts(after)).files


def with_offers(asked: Asked, pulled: Pulled, there: OnDisk) -> Pulled:
    """What was pulled; a refusal ends in how this architecture alone can have the edit, where it can."""
    refused = {(one.path, one.line) for one in pulled.refusals if one.path in pulled.package.origins and one.line}
    edited = find_edits(pulled.package.files, there)
    hunks = [h for h in edited.hunks if refused & {(h.path, line) for line in _lines(h)}]
    name = asked.combination.name
    file = f"templates/architectures/{asked.combination.architecture}.toml"
    if not hunks or not (asked.project.root / file).is_file():
        return pulled
    library = asked.project.library().with_texts(pulled.texts)
    folder = next(iter(Toml.read(library.files, PACKAGE_FILE, PackageFile).data.folders))
    path = f"fragments/{folder}/of_{name}_alone.py"
    offers: dict[tuple[str, int], str] = {}
    try:
        own = Own(path, "Own.", _table(asked.project, asked.combination, path))
        search = Search(pulled.package, edited, library, asked.package, own)
        for hunk in hunks:
            if host := search.find([hunk]).hosts.get(hunk):
                said = f"gen pull {name} --as fragments/{host.split('/')[0]}/NAME.py --line {hunk.path}:{hunk.at}"
                offers.update({(hunk.path, line): said for line in _lines(hunk)})
    except LoomError:
        return pulled  # a fragment of its own is no way here
    told = [
        one._replace(remedy=f"{one.remedy} For this architecture alone: {offers[one.path, one.line]}")
        if (one.path, one.line) in offers
        else one
        for one in pulled.refusals
    ]
    return Pulled(pulled.texts, pulled.package, pulled.home, told)


def take_heads(folder: Path, before: dict[str, str], made: dict[str, bytes]) -> None:
    """Gives the files of a package the comments at their top that are woven now, where nobody edited them."""
    for path in sorted(before.keys() & made.keys()):
        old, new = split(before[path])[0], split(made[path].decode())[0]
        data = (folder / path).read_bytes() if path.endswith(".py") and kind_of(folder / path) == "file" else b""
        if old != new and data.startswith("\n".join([*old, ""]).encode()):
            replace_file(folder, path, with_head(data.decode(), made[path].decode()).encode())
