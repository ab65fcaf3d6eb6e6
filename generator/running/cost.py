"""What a compiled program costs by fragment line: a loop's body counts as often as it runs, as do all branches.

An instruction goes to its innermost frame in a package. A fusion is one instruction, so all of its cycles go to one
line: of its own frame, or else of its root's. What other fragments have in it is told beside, and is in no sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from generator.code.traced import Origin
from generator.errors import LoomError
from generator.running.hlo import Instruction, Program
from generator.running.origins import Origins, Woven

OUTSIDE = Origin("elsewhere: in no package", 0)
MOST = 10**30  # more than any program takes


@dataclass
class Cost:
    """What one run of a program costs on one device.

    Attributes:
        cycles: by source line.
        within: source -> cycles of fusions that hold something of it and are counted for another.
        kernels: (source line, Pallas kernel) -> calls.
        links: (kind, channel) of a collective -> the bytes of its result, and where it is.
        woven: the files of packages that were met.
        guessed: how many loops and branches do not say how often they run.
    """

    cycles: Counter[Origin] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    kernels: Counter[tuple[Origin, str]] = field(default_factory=Counter)
    links: dict[tuple[str, str], tuple[int, Origin]] = field(default_factory=dict)
    woven: dict[str, Woven] = field(default_factory=dict)
    guessed: int = 0


def cost_of(program: Program, origins: Origins) -> Cost:
    """What one run of the program costs."""
    cost, order = Cost(), _callees_first(program)
    sources: dict[str, set[str]] = {}  # of all that is in a computation, and in its fusions
    for name in order:
        body = program.computations[name]
        places = [_place(each, program, origins, cost) for each in body]
        sources[name] = {place.path for place in places if place.line}
        sources[name].update(*(sources[callee] for each in body if each.op == "fusion" for callee in each.calls))
    runs, timed = Counter({program.entry: 1}), Counter({program.entry: 1})  # of a fusion the inside is not timed
    for name in reversed(order):
        for each in program.computations[name]:
            place, timeless = _place(each, program, origins, cost), each.op == "fusion" and each.cycles is not None
            cycles = timed[name] * (each.cycles or 0)
            cost.cycles[place] += cycles
            for callee in each.calls:
                runs[callee] += runs[name] * each.rounds
                timed[callee] += 0 if timeless else timed[name] * each.rounds
                for source in sources[callee] - {place.path} if timeless else ():
                    cost.within[source] += cycles
            if each.kernel:
                cost.kernels[place, each.kernel] += runs[name]
            if each.link:
                cost.links[each.link] = max(cost.links.get(each.link, (0, place)), (runs[name] * each.sent, place))
            cost.guessed += each.guessed
        if max(runs[name], cost.cycles.total(), *(sent for sent, _ in cost.links.values()), 0) > MOST:
            raise LoomError("cannot be read as HLO: its loops run longer than any program does", program.shown)
    return cost


def _callees_first(program: Program) -> list[str]:
    """The computations, each before all that call it."""
    calls = {name: {callee for each in body for callee in each.calls} for name, body in program.computations.items()}
    if unknown := set().union(*calls.values()) - set(calls):
        raise LoomError(f"cannot be read as HLO: it does not define {min(unknown)}", program.shown)
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError:
        raise LoomError("cannot be read as HLO: a computation runs itself", program.shown) from None


def _place(instruction: Instruction, program: Program, origins: Origins, cost: Cost) -> Origin:
    """The source line of the innermost frame in a package; of a fusion that has none, of its root's."""
    for frame in instruction.frames:
        woven = origins.find(frame.file)
        if woven and (origin := woven.origin(frame.line, frame.column)):
            cost.woven[frame.file] = woven
            return origin
    if instruction.op == "fusion":
        inside = (part for name in instruction.calls for part in program.computations[name])
        root = next((part for part in inside if part.root and part.op != "fusion"), None)
        if root:
            return _place(root, program, origins, cost)
    return OUTSIDE if instruction.frames else Origin(f"elsewhere: {instruction.op} of no source", 0)
