"""Refuses files that import each other, and names the definition that can move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from generator.code.traced import Traced
from generator.errors import LoomError
from generator.weave.link import References, origin_of, reachable


def check_import_circles(
    keys_of: Mapping[str, list[str]],
    files: Mapping[str, str],
    texts: Mapping[str, Traced],
    references: Callable[[str], References],
    folders: Mapping[str, str],
    builtin: Collection[str],
) -> None:
    """Refuses files that import each other.

    Args:
        keys_of: file -> the keys of its definitions.
        files: key -> its file.
        folders: folder of fragments -> the file that they go to.
        builtin: the paths of sources that the user of a project cannot change.
    """
    uses = {  # file -> other file -> the key of a definition, and a key in the other file that it uses
        file: {
            files[used]: (key, used)
            for key in keys
            for used in references(key).uses
            if used not in references(key).late
        }
        for file, keys in keys_of.items()
    }
    try:
        TopologicalSorter({file: others.keys() - {file} for file, others in uses.items()}).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        start = circle.index(min(circle))
        circle = [*circle[start:-1], *circle[: start + 1]]
        edges = [(*uses[file][other], file) for file, other in pairwise(circle)]
        reasons = ", ".join(f"{key} in {file} uses {used}" for key, used, file in edges)
        remedy = "Move a definition to a fragment of another folder."
        for _, used, file in sorted(edges, key=lambda edge: texts[edge[1]].origin_at(0).path in builtin):
            needed = {files[key] for key in reachable([used], references)} - {files[used], file}
            stays = [key for key in reachable([used], references) if files[key] == files[used] and key != used]
            if needed.isdisjoint(circle) and not stays:
                names = " or ".join(
                    f"fragments/{folder}/" for folder, place in folders.items() if place == file and "/" not in folder
                )
                remedy = f"Move {used} to a fragment of its own, and write its NAME = {file!r} under [folders]."
                if names:
                    remedy = f"Move {used} to a fragment of its own in {names}, whose definitions go to {file}."
                break
        key, used, _ = edges[0]
        message = f"files import each other in a circle, {' -> '.join(circle)}: {reasons}"
        raise LoomError(message, str(origin_of(texts[key], used)), remedy) from None
