"""What fragments require of each other, and exclude."""

from __future__ import annotations

import re

from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.parts import Selection
from generator.recipe.schema import PackageToml
from generator.recipe.toml import Toml


def drop_incompatible(selection: Selection, package_file: Toml[PackageToml]) -> Selection:
    """Returns a selection without fragments of every package whose `requires` or `excludes` the others do not meet."""
    names = _collect_names(selection)
    common = package_file.data.fragments
    kept = {
        name: (fragment, where)
        for name, (fragment, where) in selection.items()
        if name not in common
        or (all(_is_met(other, names) for other in fragment.requires) and names.isdisjoint(fragment.excludes))
    }
    return kept if kept.keys() == selection.keys() else drop_incompatible(kept, package_file)


def _collect_names(selection: Selection) -> set[str]:
    return {name for fragment, _ in selection.values() for name in (fragment.name, fragment.short)}


def check_requirements(selection: Selection, library: Library) -> None:
    """Checks `requires` and `excludes` of every selected fragment."""
    names = _collect_names(selection)
    known = {name for path in library.fragments() for name in (path, path.split("/")[-1])}
    for fragment, where in selection.values():
        for word, others in (("requires", fragment.requires), ("excludes", fragment.excludes)):
            for other in (name for alternatives in others for name in alternatives.split(" or ")):
                if other not in known:
                    string = re.compile(rf"""["'](.* or )?{re.escape(other)}( or .*)?["']""")
                    lines = enumerate(library.files[fragment.path].splitlines(), start=1)
                    code = (n for n, line in lines if not line.lstrip().startswith("#") and string.search(line))
                    place = f"{fragment.path}:{next(code, 1)}"
                    raise LoomError(f"{word} an unknown fragment {other!r}", place, nearest(other, known))
        for other in fragment.requires:
            if not _is_met(other, names):
                remedy = f'Add "{other.split(" or ")[0]}" to the fragments, or take "{fragment.name}" away.'
                message = f"{fragment.name} requires {other}, which is not selected"
                raise LoomError(message, str(where), remedy, dependent=fragment.name)
        for other in fragment.excludes:
            if other in names:
                line = next(line for peer, line in selection.values() if other in (peer.name, peer.short))
                remedy = "Take one of them away, or for one target under [targets.NAME] of the architecture."
                raise LoomError(f"{fragment.name} excludes {other}, selected at {line}", str(where), remedy)


def _is_met(required: str, names: set[str]) -> bool:
    """Returns whether one of `rope or alibi` is selected."""
    return not names.isdisjoint(required.split(" or "))
