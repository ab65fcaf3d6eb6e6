"""Attributes what a program costs to fragment lines: by the compiler's estimates, or as a profile measured it.

Of a compiled program a loop's body counts as often as it runs, as do all branches; of a profile what was run.

An instruction goes to its innermost frame in a package. A fusion is one instruction, so all of its cycles go to one
line: of its own frame, or else of its root's. What other fragments have in it is reported beside, and is in no sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from generator.code.traced import Origin
from generator.errors import LoomError
from generator.running.hlo import HloModule, Instruction
from generator.running.origins import Origins, WovenFile

if TYPE_CHECKING:
    from generator.running.profile import Profile  # which needs JAX

OUTSIDE = Origin("elsewhere: in no package", 0)
UNKNOWN = Origin("elsewhere: of programs that the profile does not hold", 0)
LONGEST = 10**30  # more than any program takes
KEYS = ("spent", "within", "bytes_between_devices", "kernel_calls")


@dataclass
class Cost:
    """What one run of a program costs on one device, or all that a profile holds, on all of its devices.

    Attributes:
        unit: of what is spent, cycles or nanoseconds.
        spent: by source line.
        within: source -> what is spent in fusions that hold something of it and are counted for another.
        kernels: (source line, Pallas kernel) -> calls.
        links: (program, kind, channel) of a collective -> the bytes of its result, and where it is.
        woven: the files of packages that were met.
        guessed: how many loops and branches do not say how often they run.
    """

    unit: str = "cycles"
    spent: Counter[Origin] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    kernels: Counter[tuple[Origin, str]] = field(default_factory=Counter)
    links: dict[tuple[str, ...], tuple[int, Origin]] = field(default_factory=dict)
    woven: dict[str, WovenFile] = field(default_factory=dict)
    guessed: int = 0

    def add(self, program: HloModule, ran: dict[str, tuple[int, int]], origins: Origins) -> None:
        """Adds what a program costs: instruction -> how often it ran, and what was spent in it."""
        sources: dict[str, set[str]] = {}  # of all that is in a computation, and in its fusions
        for name in _callees_first(program):
            sources[name] = set()
            for each in program.computations[name]:
                place = self._place(each, program, origins)
                fused = set().union(*(sources[callee] for callee in each.calls)) if each.op == "fusion" else set()
                sources[name] |= fused | ({place.path} if place.line else set())
                if each.name not in ran:
                    continue
                times, spent = ran[each.name]
                self.spent[place] += spent
                if each.cycles is not None or self.unit != "cycles":  # else those inside of it are counted
                    self.within.update(dict.fromkeys(fused - {place.path}, spent))
                if each.kernel:
                    self.kernels[place, each.kernel] += times
                if each.link:
                    key = (program.name, *each.link)
                    self.links[key] = max(self.links.get(key, (0, place)), (times * each.sent, place))

    def _place(self, instruction: Instruction, program: HloModule, origins: Origins) -> Origin:
        """Finds the source line of the innermost frame in a package; of a fusion that has none, of its root's."""
        for frame in instruction.frames:
            woven = origins.find(frame.file)
            if woven and (origin := woven.origin(frame.line, frame.column)):
                self.woven[frame.file] = woven
                return origin
        if instruction.op == "fusion":
            inside = (part for name in instruction.calls for part in program.computations[name])
            root = next((part for part in inside if part.root and part.op != "fusion"), None)
            if root:
                return self._place(root, program, origins)
        return OUTSIDE if instruction.frames else Origin(f"elsewhere: {instruction.op} of no source", 0)

    def by_source(self) -> dict[str, Counter[str]]:
        """Sums what each source costs by KEYS, the dearest first."""
        rows: dict[str, Counter[str]] = defaultdict(Counter)
        for origin, spent in self.spent.items():
            rows[origin.path]["spent"] += spent
        for source, spent in self.within.items():
            rows[source]["within"] += spent
        for sent, origin in self.links.values():
            rows[origin.path]["bytes_between_devices"] += sent
        for (origin, _), calls in self.kernels.items():
            rows[origin.path]["kernel_calls"] += calls
        return {source: row for source, row in sorted(rows.items(), key=lambda it: -it[1]["spent"]) if row.total()}


def cost_of(program: HloModule, origins: Origins) -> Cost:
    """Estimates what one run of a program costs."""
    ran: dict[str, tuple[int, int]] = {}
    runs, timed = Counter({program.entry: 1}), Counter({program.entry: 1})  # of a fusion the inside is not timed
    for name in reversed(_callees_first(program)):
        for each in program.computations[name]:
            ran[each.name] = runs[name], timed[name] * (each.cycles or 0)
            for callee in each.calls:
                runs[callee] += runs[name] * each.rounds
                if each.op != "fusion" or each.cycles is None:
                    timed[callee] += timed[name] * each.rounds
    if max(*runs.values(), *(spent for _, spent in ran.values())) > LONGEST:
        raise LoomError("cannot be read as HLO: its loops run longer than any program does", program.shown)
    cost = Cost(guessed=sum(each.guessed for body in program.computations.values() for each in body))
    cost.add(program, ran, origins)
    return cost


def cost_of_profile(profile: Profile, origins: Origins) -> Cost:
    """Sums what ran while a profile was taken."""
    cost = Cost("nanoseconds")
    for name, ran in profile.ran.items():
        if program := profile.programs.get(name):
            cost.add(program, ran, origins)
            ran = {instruction: ran[instruction] for instruction in ran.keys() - program.names}
        cost.spent[UNKNOWN] += sum(spent for _, spent in ran.values())
    return cost


def _callees_first(program: HloModule) -> list[str]:
    """Orders the computations, each before all that call it."""
    calls = {name: {callee for each in body for callee in each.calls} for name, body in program.computations.items()}
    if unknown := set().union(*calls.values()) - set(calls):
        raise LoomError(f"cannot be read as HLO: it does not define {min(unknown)}", program.shown)
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError:
        raise LoomError("cannot be read as HLO: a computation runs itself", program.shown) from None
