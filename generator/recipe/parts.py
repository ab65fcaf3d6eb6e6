"""Selects the parts of a package: its abilities besides training, each with a name.

A part is a table of templates/package.toml. It lists fragments, or folders of them. Whatever selects one of these (an
architecture, a target, every package), only packages with the part have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.pattern import Pattern
from generator.recipe.schema import ALL, EMPTY, LEFT_OUT, PackageToml, PartTable, TargetToml
from generator.recipe.toml import Toml

Selection = dict[str, tuple[Fragment, Origin]]  # name -> fragment, and the line that selects it


def parts_for(target: str, file: Toml[PackageToml], defaults: Collection[str]) -> dict[str, PartTable]:
    """Returns the parts that packages for a target can have, those among them that it has by default."""
    parts = file.data.parts.items()
    return {name: part for name, part in parts if not part.targets or target in part.targets or name in defaults}


def asked_for(names: Iterable[str]) -> list[str]:
    """Returns the names of parts that are asked for; `-compile` leaves one out that the target or "all" brings."""
    return [name for name in names if not name.startswith(LEFT_OUT)]


def find_unfit(file: Toml[PackageToml], selection: Selection, pattern: Pattern) -> dict[str, tuple[str, str]]:
    """Returns the parts that require what the model lacks: part -> why, and the place that says so."""
    unfit = {}
    for name, part in file.data.parts.items():
        for words, gives in (part.requires | part.requires_some).items():
            fragments = words.split(" or ")
            selected = [fragment for fragment in fragments if fragment in selection]
            having = [kind for fragment in selected for kind in pattern.kinds_with(fragment)]
            if not selected:
                unfit[name] = f"it has no {gives} ({words})", ""
            elif lacking := [kind for kind in pattern.kinds.values() if kind not in having and words in part.requires]:
                unfit[name] = f"layers of the kind {lacking[0].name} have no {gives} ({words})", str(lacking[0].origin)
            for other, (peer, where) in selection.items():
                excluded = [it for it in fragments if {it, it.split("/")[-1]}.intersection(peer.excludes)]
                if excluded and other not in file.data.fragments:
                    unfit[name] = f"{other} excludes {excluded[0]}: no {gives}", str(where)
        for other, (peer, _) in selection.items():
            places = {splice.point: splice for splice in peer.splices}
            for point, of_part in part.also.items():
                if point in places and of_part not in places and name not in unfit:
                    why = f"{other} splices at {point} and not at {of_part}, which is what the part runs in its place"
                    unfit[name] = why, str(places[point].origin)
    return unfit


def select_parts(
    names: Collection[str],
    file: Toml[PackageToml],
    target: str,
    defaults: Collection[str] = (),
    unfit: Mapping[str, tuple[str, str]] = EMPTY,
) -> tuple[str, ...]:
    """Returns the named parts, the defaults of the target and those they need, in the order of the file.

    Args:
        names: "all" stands for those that are no choice and fit the model; "-compile" leaves one out.
        defaults: the parts that packages for the target have unless they leave them out.
        unfit: the parts that do not fit the model: why, and the place that says so.
    """
    parts = parts_for(target, file, defaults)
    left_out = {name.removeprefix(LEFT_OUT) for name in names if name.startswith(LEFT_OUT)}
    for name in left_out - parts.keys():
        raise LoomError(f"unknown part {name!r} to leave out", None, nearest(name, parts))
    queue = [name for name in asked_for(names) if name != ALL]
    queue += [name for name in defaults if name not in left_out]
    selected = {name for name, part in parts.items() if ALL in names and not part.choice}
    lost = selected & (unfit.keys() | left_out)
    while lost:  # and what needs them
        selected -= lost
        lost = {name for name in selected if not selected.issuperset(parts[name].needs)}
    while queue:
        name = queue.pop()
        if name in file.data.parts and name not in parts:
            others = " and ".join(file.data.parts[name].targets)
            raise LoomError(f"the part {name} is not for {target}", None, f"Leave it out; it is for {others}.")
        if name not in parts:
            known = [part for part in parts if name.lower() in parts[part].aliases]
            remedy = f"It is the part {known[0]}: --with {known[0]}." if known else nearest(name, [*parts, ALL])
            raise LoomError(f"unknown part {name!r}", None, remedy)
        if name in left_out:
            message = f"the part {name} is left out, and is asked for or needed by {', '.join(asked_for(names))}"
            raise LoomError(message, None, f"Build it without --without {name}, or without the part that needs it.")
        if name in unfit:
            why, where = unfit[name]
            remedy = f"Build it without {' and '.join(part for part in names if part != ALL)}."
            raise LoomError(f"the model cannot have the part {name}: {why}", where or None, remedy)
        if name not in selected:
            selected.add(name)
            queue += parts[name].needs
    for choice in dict.fromkeys(parts[name].choice for name in parts if name in selected):
        chosen = [name for name in parts if name in selected and choice and parts[name].choice == choice]
        if len(chosen) > 1:
            raise LoomError(f"the parts {' and '.join(chosen)} both decide on {choice}", None, "Give one of them.")
    return tuple(name for name in parts if name in selected)


def fragments_of_other_parts(fragments: Iterable[str], parts: Collection[str], file: Toml[PackageToml]) -> list[str]:
    """Returns those of some fragments that only parts other than the selected ones list."""
    table = file.data.parts
    ours = {entry for name in parts for entry in table[name].fragments}
    others = {entry for name in table.keys() - set(parts) for entry in table[name].fragments} - ours
    return [name for name in fragments if not others.isdisjoint((name, name.split("/")[0]))]


def check_parts_add(
    names: Collection[str],
    selected: Selection,
    fragments: Selection,
    file: Toml[PackageToml],
    architecture: str,
    target: str,
) -> None:
    """Refuses a part that was asked for by its name and adds no fragment.

    It adds none if those of its own that were selected, tests aside, do not go with the others, or if it has none here
    and those that it needs add none.
    """

    def entries_of(names: Collection[str]) -> set[str]:
        return {entry for name in names if not name.startswith("tests/") for entry in (name, name.split("/")[0])}

    for name in asked_for(names):
        if name != ALL:
            own = entries_of(selected).intersection(file.data.parts[name].fragments)
            needed = [entry for part in select_parts([name], file, target) for entry in file.data.parts[part].fragments]
            if entries_of(fragments).isdisjoint(own or needed):
                words = {word for fragment in fragments for word in (fragment, fragment.split("/")[-1])}
                lost = [selected[fragment][0] for fragment in selected if fragment in file.data.parts[name].fragments]
                why = [f": {it.name} excludes {other}" for it in lost for other in it.excludes if other in words]
                message = f"the part {name} adds nothing to {architecture} for {target}{''.join(why[:1])}"
                raise LoomError(message, None, "Leave it out.")


def check_parts(file: Toml[PackageToml], library: Library) -> None:
    """Refuses a part that names a fragment, a folder, a part or a target that does not exist."""
    fragments = {*library.fragments(), *(name.split("/")[0] for name in library.fragments())}
    for name, part in file.data.parts.items():
        required, required_somewhere = (
            [(words, fragment) for words in table for fragment in words.split(" or ")]
            for table in (part.requires, part.requires_some)
        )
        for key, entries, known in (
            ("fragments", enumerate(part.fragments), fragments),
            ("needs", enumerate(part.needs), file.data.parts),
            ("requires", required, library.fragments()),
            ("requires_some", required_somewhere, library.fragments()),
            ("targets", enumerate(part.targets), library.targets()),
        ):
            for place, entry in entries:
                if entry not in known:
                    message = f"part {name} has {entry!r} under {key}, which does not exist"
                    raise LoomError(message, str(part.origin(key, place)), nearest(entry, known))


def check_defaults(target: Toml[TargetToml], file: Toml[PackageToml]) -> None:
    """Refuses a target whose default parts do not exist."""
    for number, name in enumerate(target.data.parts):
        if name not in file.data.parts:
            where = str(target.origin("parts", number))
            raise LoomError(f"unknown part {name!r}", where, nearest(name, file.data.parts))
