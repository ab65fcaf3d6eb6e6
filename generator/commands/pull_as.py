"""Edits that one architecture alone gets: where their fragment goes, and that no other package changes for it."""

from __future__ import annotations

import re
from pathlib import Path

from generator.commands.packages import PackageBuilder
from generator.disk.files import display_path, kind_of
from generator.disk.lock import Combination
from generator.disk.project import Project
from generator.errors import LoomError
from generator.pull.apart import NewFragment, SpliceSearch
from generator.pull.edited import Edited, Hunk, find_edits
from generator.pull.pull import Pulled
from generator.recipe.recipe import PACKAGE_FILE, lineage_of
from generator.recipe.schema import PackageToml as PackageFile
from generator.recipe.toml import Toml

_PATH = re.compile(r"fragments/([a-z_]\w*)/([a-z_]\w*)\.py", re.ASCII)
OF_GEN = (
    "Keep it in the package: gen own {package}. Or make it in an architecture of your own: write "
    'title = "My model" and base = "{architecture}" to templates/architectures/NAME.toml, gen build NAME '
    "--target={target}, edit that package, and gen pull NAME_{target} --as fragments/FOLDER/NAME.py."
)


def read_own(project: Project, combination: Combination, path: str, title: str) -> NewFragment:
    """Checks the path and the title of a new fragment, and finds where the architecture's file selects it."""
    match = _PATH.fullmatch(path)
    if match is None or match[2] == "__init__":
        raise LoomError("is not the path of a fragment", path, "Write --as fragments/FOLDER/NAME.py.")
    folders = Toml.read(project.library().files, PACKAGE_FILE, PackageFile).data.folders
    if match[1] not in folders:
        remedy = f"Take one of {', '.join(folders)}; they are under [folders] of {PACKAGE_FILE}."
        raise LoomError(f"no file of a package has fragments of {match[1]}/", path, remedy)
    if path in project.library().files or kind_of(project.root / path):
        raise LoomError("is there already", path, "Give the new fragment another name.")
    title = (title or match[2].strip("_").replace("_", " ").capitalize()).strip()
    if not title or not title.isprintable() or re.search(r'["\\]', title):
        raise LoomError("is no title", repr(title), "Write --title in one line, without quotes and backslashes.")
    return NewFragment(path, title + "." * (title[-1] not in ".!?"), _table(project, combination, path))


def _table(project: Project, combination: Combination, path: str) -> tuple[str, ...]:
    """Finds the table that selects the fragment: the top, or that of the target, which other targets do not get."""
    name, fragment = combination.architecture, path.removeprefix("fragments/").removesuffix(".py")
    file = f"templates/architectures/{name}.toml"
    if not (project.root / file).is_file():
        raise LoomError("is part of gen and not of this project", file, of_gen(combination))
    lineages = {c: _lineage(project, c.architecture) for c in project.packages() if c != combination}
    heirs = [c for c, lineage in lineages.items() if name in lineage]
    same = [c for c in heirs if c.target == combination.target]
    if not same:
        return ("targets", combination.target) if heirs else ()
    below = sorted({lineages[c][lineages[c].index(name) + 1] for c in same})
    raise LoomError(
        f"{', '.join(c.name for c in same)} would get it too: {name} is the base of {', '.join(below)}",
        file,
        f'Make the edit in an architecture of its own, base = "{name}". Or write the fragment by hand, and without = '
        f'["{fragment}"] in {", ".join(f"templates/architectures/{one}.toml" for one in below)}.',
    )


def of_gen(combination: Combination) -> str:
    """Says what to do with an edit for which gen's own files would have to change."""
    return OF_GEN.format(package=combination.name, architecture=combination.architecture, target=combination.target)


def _lineage(project: Project, architecture: str) -> list[str]:
    """The names of an architecture's bases, the first one first, and its own."""
    return [Path(file.path).stem for file in lineage_of(architecture, project.library())]


def find_named(lines: tuple[str, ...], edited: Edited, folder: Path) -> list[Hunk]:
    """Finds the edits at lines that someone named, each as FILE:LINE or LINE."""
    found: list[Hunk] = []
    for line in lines:
        path, _, number = line.removeprefix(f"{display_path(folder)}/").removeprefix(f"{folder.name}/").rpartition(":")
        path = path or (next(iter(edited.texts)) if len(edited.texts) == 1 else "")
        if not path or not number.isdecimal():
            raise LoomError("names no line", f"--line {line}", "Write FILE:LINE, as gen pull shows it.")
        hunk = next((hunk for hunk in edited.hunks if (path, int(number)) in hunk.places), None)
        if hunk is None:
            places = ", ".join(f"{h.path}:{h.at}" for h in edited.hunks[:10]) or "nowhere"
            raise LoomError(
                "was not edited", f"{display_path(folder)}/{path}:{number}", f"The edits stand at {places}."
            )
        found.append(hunk)
    return found


def with_own(
    builder: PackageBuilder, pulled: Pulled, found: dict[str, bytes | str], own: NewFragment, named: list[Hunk]
) -> Pulled:
    """Adds a fragment for the edits that were named, or else for those that cannot go home.

    Args:
        found: the files of the package on disk.
    """
    edited = find_edits(pulled.package.files, found)
    places = {place for hunk in named for place in hunk.places}
    library = builder.project.library().with_texts(pulled.texts)
    search = SpliceSearch(pulled.package, edited, library, builder.weave, own)
    apart = search.find([hunk for hunk in edited.hunks if not places or places & hunk.places])
    if not apart.made or (places and apart.reasons):
        shown = display_path(builder.folder)
        reasons = "; ".join(f"{shown}/{hunk.path}:{hunk.at}: {why}" for hunk, why in apart.reasons.items())
        remedy = "Change the fragments by hand, or keep the edit in the package: gen own."
        if not apart.reasons:
            reasons, remedy = "every edit can go to the fragments that it came from", "Name one: --line FILE:LINE."
        raise LoomError(f"there is nothing for this fragment: {reasons}", own.path, remedy)
    made = {place for hunk in apart.made for place in hunk.places}
    left = [one for one in pulled.refusals if (one.path, one.line) not in made]
    whys = {(hunk.path, hunk.at): f"; in a fragment of its own, {why}" for hunk, why in apart.reasons.items()}
    left = [one._replace(reason=one.reason + whys.get((one.path, one.line), "")) for one in left]
    return Pulled({**pulled.texts, **apart.texts}, pulled.package, [*pulled.home, *apart.made], left)
