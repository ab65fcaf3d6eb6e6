"""`gen pull --as`: checks where a new fragment is selected, and finds it for the edits of one architecture."""

from __future__ import annotations

import re
from pathlib import Path

from generator.commands.packages import PackageBuilder
from generator.disk.files import display_path, kind_of
from generator.disk.lock import Combination
from generator.disk.project import Project
from generator.errors import LoomError
from generator.pull.edits import Hunk, PackageEdits, find_edits
from generator.pull.new_fragment import NewFragment, SpliceSearch
from generator.pull.pull import PullResult
from generator.pull.refusals import OF_GEN
from generator.recipe.recipe import PACKAGE_FILE, lineage_of
from generator.recipe.schema import PackageToml as PackageFile
from generator.recipe.toml import Toml

_PATH = re.compile(r"fragments/([a-z_]\w*)/([a-z_]\w*)\.py", re.ASCII)


def read_new_fragment(project: Project, combination: Combination, path: str, title: str) -> NewFragment:
    """Checks the path and the title of a new fragment, and finds the table that selects it."""
    match = _PATH.fullmatch(path)
    if match is None or match[2] == "__init__":
        raise LoomError("is not the path of a fragment", path, "Write --as fragments/FOLDER/NAME.py.")
    folders = Toml.read(project.library().files, PACKAGE_FILE, PackageFile).data.folders
    if match[1] not in folders:
        remedy = f"Take one of {', '.join(folders)}; they are under [folders] of {PACKAGE_FILE}."
        raise LoomError(f"no file of a package has fragments of {match[1]}/", path, remedy)
    if path in project.library().files or kind_of(project.root / path):
        raise LoomError("exists already", path, "Give the new fragment another name.")
    title = (title or match[2].strip("_").replace("_", " ").capitalize()).strip()
    if not title or not title.isprintable() or re.search(r'["\\]', title):
        raise LoomError("is not a title", repr(title), "Write --title in one line, without quotes and backslashes.")
    return NewFragment(path, title + "." * (title[-1] not in ".!?"), _find_table(project, combination, path))


def _find_table(project: Project, combination: Combination, path: str) -> tuple[str, ...]:
    """Returns the table that selects a fragment for one package: the top of the file, or that of the target."""
    name, fragment = combination.architecture, path.removeprefix("fragments/").removesuffix(".py")
    file = f"templates/architectures/{name}.toml"
    if not (project.root / file).is_file():
        raise LoomError(OF_GEN, file, advise_on_gen_file(project, combination))
    bases = {
        other: [Path(toml.path).stem for toml in lineage_of(other.architecture, project.library())]
        for other in project.packages()
        if other != combination
    }
    derived = [other for other, lineage in bases.items() if name in lineage]
    same_target = [other for other in derived if other.target == combination.target]
    if not same_target:
        return ("targets", combination.target) if derived else ()
    children = sorted({bases[other][bases[other].index(name) + 1] for other in same_target})
    raise LoomError(
        f"{', '.join(other.name for other in same_target)} would get it too: {name} is the base of "
        f"{', '.join(children)}",
        file,
        f'Make the edit in an architecture of its own, base = "{name}". Or write the fragment by hand, and without = '
        f'["{fragment}"] in {", ".join(f"templates/architectures/{one}.toml" for one in children)}.',
    )


def advise_on_gen_file(project: Project, combination: Combination) -> str:
    """Returns the remedy for an edit that would change a file of gen."""
    package, architecture, target = combination.name, combination.architecture, combination.target
    keep = f"Keep it in the package: gen own {package}."
    if (project.root / f"templates/architectures/{architecture}.toml").is_file():
        return keep
    return (
        f"{keep} Or make it in an architecture of your own: write "
        f'title = "My model" and base = "{architecture}" to templates/architectures/NAME.toml, gen build NAME '
        f"--target={target}, edit that package, and gen pull NAME_{target} --as fragments/FOLDER/NAME.py."
    )


def find_hunks(lines: tuple[str, ...], edits: PackageEdits, folder: Path) -> list[Hunk]:
    """Returns the hunks at lines, each given as FILE:LINE or LINE."""
    hunks: list[Hunk] = []
    for line in lines:
        path, _, number = line.removeprefix(f"{display_path(folder)}/").removeprefix(f"{folder.name}/").rpartition(":")
        path = path or (next(iter(edits.texts)) if len(edits.texts) == 1 else "")
        if not path or not number.isdecimal():
            raise LoomError("names no line", f"--line {line}", "Write FILE:LINE, as gen pull shows it.")
        hunk = next((hunk for hunk in edits.hunks if (path, int(number)) in hunk.places), None)
        if hunk is None:
            places = ", ".join(f"{h.path}:{h.at}" for h in edits.hunks[:10]) or "nowhere"
            where = f"{display_path(folder)}/{path}:{number}"
            raise LoomError("was not edited", where, f"The edits are at {places}.")
        hunks.append(hunk)
    return hunks


def add_fragment(
    builder: PackageBuilder,
    pulled: PullResult,
    on_disk: dict[str, bytes | str],
    fragment: NewFragment,
    hunks: list[Hunk],
) -> PullResult:
    """Adds a fragment to a pull.

    Args:
        on_disk: path -> content of the edited package.
        hunks: the edits for the fragment; if empty, those that the pull refused.
    """
    edits = find_edits(pulled.package.files, on_disk)
    places = {place for hunk in hunks for place in hunk.places}
    library = builder.project.library().with_texts(pulled.texts)
    search = SpliceSearch(pulled.package, edits, library, builder.weave, fragment)
    result = search.find([hunk for hunk in edits.hunks if not places or places & hunk.places])
    if not result.accepted or (places and result.reasons):
        folder = display_path(builder.folder)
        reasons = "; ".join(f"{folder}/{hunk.path}:{hunk.at}: {why}" for hunk, why in result.reasons.items())
        remedy = "Change the fragments by hand, or keep the edit in the package: gen own."
        if not result.reasons:
            reasons, remedy = "every edit can go to the fragments that it came from", "Name one: --line FILE:LINE."
        raise LoomError(f"there is nothing for this fragment: {reasons}", fragment.path, remedy)
    accepted = {place for hunk in result.accepted for place in hunk.places}
    refusals = [one for one in pulled.refusals if (one.path, one.line) not in accepted]
    whys = {(hunk.path, hunk.at): f"; in a fragment of its own, {why}" for hunk, why in result.reasons.items()}
    refusals = [one._replace(reason=one.reason + whys.get((one.path, one.line), "")) for one in refusals]
    texts = pulled.texts | result.texts
    return PullResult(texts, pulled.package, [*pulled.accepted, *result.accepted], refusals)
