"""Attributes the cost of a program to fragment lines: by the compiler's estimates, or as a profile measured it.

In a compiled program, a loop's body counts as often as it runs, and all branches count; in a profile, what ran counts.

An instruction is attributed to its innermost frame in a package. A fusion is one instruction, so all of its cycles go
to one line: of its own frame, or else of its root's. The share of other fragments in it is a column of its own, and is
in no sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from generator.code.traced import Origin
from generator.errors import LoomError
from generator.running.hlo import HloModule, Instruction
from generator.running.woven_files import WovenFile, WovenFiles

if TYPE_CHECKING:
    from generator.running.profile import Profile  # which imports JAX

OUTSIDE = Origin("elsewhere: in no package", 0)
UNKNOWN = Origin("elsewhere: of programs that the profile does not hold", 0)
MAX_CYCLES = 10**30  # more than any program takes
KEYS = ("spent", "within", "bytes_between_devices", "kernel_calls")


@dataclass
class Cost:
    """The cost of one run of a program on one device, or of everything in a profile on all of its devices.

    Attributes:
        unit: "cycles" or "nanoseconds".
        spent: source line -> units.
        within: source -> units of fusions that contain some of it and are attributed to another source.
        kernels: source line and Pallas kernel -> calls.
        collectives: program, kind and channel of a collective -> bytes of its result, and source line.
        woven: path as recorded -> file of a package.
        guessed: number of loops and branches whose count of runs is unknown.
    """

    unit: str = "cycles"
    spent: Counter[Origin] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    kernels: Counter[tuple[Origin, str]] = field(default_factory=Counter)
    collectives: dict[tuple[str, ...], tuple[int, Origin]] = field(default_factory=dict)
    woven: dict[str, WovenFile] = field(default_factory=dict)
    guessed: int = 0

    def add(self, program: HloModule, runs: dict[str, tuple[int, int]], files: WovenFiles) -> None:
        """Adds the cost of a program.

        Args:
            runs: instruction -> number of runs, and units spent in them.
        """
        sources: dict[str, set[str]] = {}  # computation -> sources in it and in its fusions
        for name in _callees_first(program):
            sources[name] = set()
            for each in program.computations[name]:
                place = self._attribute(each, program, files)
                fused = set().union(*(sources[callee] for callee in each.calls)) if each.op == "fusion" else set()
                sources[name] |= fused | ({place.path} if place.line else set())
                if each.name not in runs:
                    continue
                times, spent = runs[each.name]
                self.spent[place] += spent
                if each.cycles is not None or self.unit != "cycles":  # else the cycles inside it are counted
                    self.within.update(dict.fromkeys(fused - {place.path}, spent))
                if each.kernel:
                    self.kernels[place, each.kernel] += times
                if each.channel:
                    key = (program.name, *each.channel)
                    self.collectives[key] = max(self.collectives.get(key, (0, place)), (times * each.sent, place))

    def _attribute(self, instruction: Instruction, program: HloModule, files: WovenFiles) -> Origin:
        """Returns the source line of an instruction's innermost frame in a package; of a fusion, else its root's."""
        for frame in instruction.frames:
            woven = files.find(frame.file)
            if woven and (origin := woven.origin(frame.line, frame.column)):
                self.woven[frame.file] = woven
                return origin
        if instruction.op == "fusion":
            inside = (part for name in instruction.calls for part in program.computations[name])
            root = next((part for part in inside if part.is_root and part.op != "fusion"), None)
            if root:
                return self._attribute(root, program, files)
        return OUTSIDE if instruction.frames else Origin(f"elsewhere: {instruction.op} of no source", 0)

    def by_source(self) -> dict[str, Counter[str]]:
        """Returns source -> sums by KEYS, the most expensive source first."""
        rows: dict[str, Counter[str]] = defaultdict(Counter)
        for origin, spent in self.spent.items():
            rows[origin.path]["spent"] += spent
        for source, spent in self.within.items():
            rows[source]["within"] += spent
        for sent, origin in self.collectives.values():
            rows[origin.path]["bytes_between_devices"] += sent
        for (origin, _), calls in self.kernels.items():
            rows[origin.path]["kernel_calls"] += calls
        return {source: row for source, row in sorted(rows.items(), key=lambda item: -item[1]["spent"]) if row.total()}


def estimate_cost(program: HloModule, files: WovenFiles) -> Cost:
    """Estimates the cost of one run of a program."""
    runs: dict[str, tuple[int, int]] = {}
    calls, timed = Counter({program.entry: 1}), Counter({program.entry: 1})  # inside a timed fusion nothing is timed
    for name in reversed(_callees_first(program)):
        for each in program.computations[name]:
            runs[each.name] = calls[name], timed[name] * (each.cycles or 0)
            for callee in each.calls:
                calls[callee] += calls[name] * each.trips
                if each.op != "fusion" or each.cycles is None:
                    timed[callee] += timed[name] * each.trips
    if max(*calls.values(), *(spent for _, spent in runs.values())) > MAX_CYCLES:
        raise LoomError("cannot be read as HLO: its loops run longer than any program does", program.shown)
    cost = Cost(guessed=sum(each.is_guessed for body in program.computations.values() for each in body))
    cost.add(program, runs, files)
    return cost


def sum_profile(profile: Profile, files: WovenFiles) -> Cost:
    """Returns the cost of everything that ran while a profile was taken."""
    cost = Cost("nanoseconds")
    for name, runs in profile.runs.items():
        if program := profile.programs.get(name):
            cost.add(program, runs, files)
            runs = {instruction: runs[instruction] for instruction in runs.keys() - program.names}
        cost.spent[UNKNOWN] += sum(spent for _, spent in runs.values())
    return cost


def _callees_first(program: HloModule) -> list[str]:
    """Returns the computations in topological order, each before its callers."""
    calls = {name: {callee for each in body for callee in each.calls} for name, body in program.computations.items()}
    if unknown := set().union(*calls.values()) - set(calls):
        raise LoomError(f"cannot be read as HLO: it does not define {min(unknown)}", program.shown)
    try:
        return list(TopologicalSorter(calls).static_order())
    except CycleError:
        raise LoomError("cannot be read as HLO: a computation runs itself", program.shown) from None
