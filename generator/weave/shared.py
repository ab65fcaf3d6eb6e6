"""Finds variables that splices of one fragment share: one binds it, and others read it further down in the function.

before, in a host and in the fragment goodput      after
    point("train.start")                               goodput = Goodput()
    batch = next(data)                                 batch = next(data)
    point("train.batch")                               goodput.spent("data")

    @splice("train.start")
    def _():
        goodput = Goodput()

    @splice("train.batch")
    def _(goodput):
        goodput.spent("data")
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from generator.code.assignment import DefiniteAssignment
from generator.code.bindings import bound_names, scopes_of
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, TracedTree, parse, walk
from generator.errors import LoomError
from generator.language.parts import Splice
from generator.weave.points import Point

Shared = dict[str, Splice]  # variable of a definition -> the splice that binds it first


def find_shared(points: Iterable[Point], by_point: dict[str, list[Splice]], before: Shared) -> Shared:
    """Returns the variables that splices of these points share, and those of the rounds before.

    Raises:
        LoomError: one has the name of a variable of the host or of another fragment.
    """
    shared = dict(before)
    placed = [(point, splice) for point in points for splice in by_point.get(point.name, ())]
    reads = [(p, s, name) for p, s in placed for name in s.reads if name not in {*p.shown, *p.named, "self"}]
    for point, splice in [pair for pair in placed if reads and pair[0].hosts]:
        bound = scopes_of(TracedTree(splice.body).tree).bound - set(splice.reads)
        for name in sorted(bound):
            readers = [other for p, other, read in reads if read == name and p.hosts[: len(point.hosts)] == point.hosts]
            if not any(other.fragment == splice.fragment for other in readers):
                continue
            if name not in before and name in bound_names(point.hosts[0], parameters=True):
                message = f"{splice.fragment} shares {name} among its splices, a variable of the host at {point.where}"
                raise LoomError(message, str(splice.origin), "Give it another name.")
            other = shared.setdefault(name, splice)
            if other.fragment != splice.fragment:
                message = f"{splice.fragment} and {other.fragment} ({other.origin}) both share a variable {name}"
                raise LoomError(f"{message} at {point.where}", str(splice.origin), "Give one of them another name.")
    return shared


def check_shared_bound(text: Traced, shared: Shared) -> None:
    """Refuses a shared variable that may be read before it has a value."""
    for function in walk(parse(text.text).module) if shared else ():
        if isinstance(function, FUNCTIONS):
            stored = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for name, _ in DefiniteAssignment(function, names).unbound if (names := shared.keys() & stored) else ():
                message = f"{shared[name].fragment} may read {name} before its splice here has bound it"
                raise LoomError(message, str(shared[name].origin), "Bind it at a point that always comes first.")
