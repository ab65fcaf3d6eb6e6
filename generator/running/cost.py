"""What a program costs by fragment line: one that was compiled, by estimates, or those of a profile, as measured.

Of a compiled program a loop's body counts as often as it runs, as do all branches; of a profile what was run.

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
from generator.running.profile import Profile

OUTSIDE = Origin("elsewhere: in no package", 0)
UNKNOWN = Origin("elsewhere: of programs that the profile does not hold", 0)
MOST = 10**30  # more than any program takes


@dataclass
class Cost:
    """What one run of a program costs on one device, or all that a profile holds, on all of its devices.

    Attributes:
        unit: of what is spent, cycles or nanoseconds.
        spent: by source line.
        within: source -> what is spent in fusions that hold something of it and are counted for another.
        kernels: (source line, Pallas kernel) -> calls.
        links: (kind, channel) of a collective -> the bytes of its result, and where it is.
        woven: the files of packages that were met.
        guessed: how many loops and branches do not say how often they run.
    """

    unit: str = "cycles"
    spent: Counter[Origin] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    kernels: Counter[tuple[Origin, str]] = field(default_factory=Counter)
    links: dict[tuple[str, str], tuple[int, Origin]] = field(default_factory=dict)
    woven: dict[str, Woven] = field(default_factory=dict)
    guessed: int = 0


def cost_of(program: Program, origins: Origins) -> Cost:
    """What one run of the program costs."""
    cost, order = Cost(), _callees_first(program)
    sources = _sources(program, order, origins, cost)
    runs, timed = Counter({program.entry: 1}), Counter({program.entry: 1})  # of a fusion the inside is not timed
    for name in reversed(order):
        for each in program.computations[name]:
            place, timeless = _place(each, program, origins, cost), each.op == "fusion" and each.cycles is not None
            cycles = timed[name] * (each.cycles or 0)
            cost.spent[place] += cycles
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
        if max(runs[name], cost.spent.total(), *(sent for sent, _ in cost.links.values()), 0) > MOST:
            raise LoomError("cannot be read as HLO: its loops run longer than any program does", program.shown)
    return cost


def cost_of_profile(profile: Profile, origins: Origins) -> Cost:
    """What ran while the profile was taken."""
    cost, left = Cost("nanoseconds"), dict(profile.ran)
    for name, program in profile.programs.items():
        sources = _sources(program, _callees_first(program), origins, cost)
        for each in (each for body in program.computations.values() for each in body):
            ran = left.pop((name, each.name), None)
            if ran is None:
                continue
            place = _place(each, program, origins, cost)
            cost.spent[place] += ran.nanoseconds
            for source in set().union(*(sources[callee] for callee in each.calls if each.op == "fusion")):
                cost.within[source] += ran.nanoseconds if source != place.path else 0
            if each.kernel:
                cost.kernels[place, each.kernel] += ran.times
            if each.link:
                cost.links[each.name, name] = ran.times * each.sent, place
    cost.spent[UNKNOWN] += sum(ran.nanoseconds for ran in left.values())
    return cost


def _sources(program: Program, order: list[str], origins: Origins, cost: Cost) -> dict[str, set[str]]:
    """The sources of all that is in each computation, and in its fusions."""
    sources: dict[str, set[str]] = {}
    for name in order:
        body = program.computations[name]
        places = [_place(each, program, origins, cost) for each in body]
        sources[name] = {place.path for place in places if place.line}
        sources[name].update(*(sources[callee] for each in body if each.op == "fusion" for callee in each.calls))
    return sources


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
