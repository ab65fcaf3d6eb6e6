"""How threaded values travel: the functions that take, pass and return them."""

from __future__ import annotations

from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from generator.code import syntax
from generator.errors import LoomError
from generator.thread.functions import Call
from generator.thread.graph import CallGraph
from generator.thread.values import Value


@dataclass
class Plan:
    """What threading adds, function by function and call by call. Names are in order of the values."""

    graph: CallGraph
    values: dict[str, Value]
    required: dict[str, list[str]] = field(default_factory=dict)  # function -> added parameters
    optional: dict[str, list[str]] = field(default_factory=dict)  # function -> added parameters that default to None
    passed: dict[int, list[str]] = field(default_factory=dict)  # index of a call -> added arguments
    provided: dict[str, list[str]] = field(default_factory=dict)  # function -> values that its providers make
    scanned: dict[str, list[str]] = field(default_factory=dict)  # nested function -> values taken apart over layers
    returned: dict[str, list[str]] = field(default_factory=dict)  # function -> values that it also returns
    needed: dict[str, list[str]] = field(default_factory=dict)  # function -> values that its splices read
    asked: list[tuple[str, str]] = field(default_factory=list)  # function and parameter that asks for a value
    split: dict[tuple[str, str], list[Call]] = field(default_factory=dict)  # function, value of each layer -> the calls

    def depth(self, function: str, name: str) -> int:
        """How many tuples are around the value of a layer in a function."""
        carrying = [c for c in self.graph.calls_of(function) if name in self.carried(c)]
        below = max((self.depth(call.callee, name) for call in carrying), default=0)
        return below + ((function, name) in self.split)

    def annotation(self, function: str, name: str) -> str:
        """The type that a value has in a function."""
        kind, depth = self.values[name].annotation, self.depth(function, name)
        if not depth:
            return kind
        inner = kind.removesuffix(" | None")
        return "tuple[" * depth + inner + ", ...]" * depth + kind[len(inner) :]

    def carried(self, call: Call) -> list[str]:
        """The values of layers that a call takes or gives."""
        passed = self.passed.get(self.graph.calls.index(call), [])
        scanned = self.scanned.get(call.callee, []) if call.scan else []
        layered = [name for name in (*passed, *scanned) if self.values[name].per_layer]
        return list(dict.fromkeys([*layered, *self.returned.get(call.callee, ())]))

    def is_stacked(self, call: Call, name: str) -> bool:
        """Whether what a call gives for a value came through scans over layers."""
        inner = [c for c in self.graph.calls_of(call.callee) if name in self.returned.get(c.callee, ())]
        given = name in self.returned.get(call.callee, ())
        return given and (call.scan or any(self.is_stacked(c, name) for c in inner))

    def item(self, call: Call, name: str) -> str:
        """A value as a call takes it: one of a tuple, where each of several calls has its own."""
        calls = self.split.get((call.caller, name), [])
        return f"{name}[{calls.index(call)}]" if call in calls and self.values[name].per_layer else name

    def taken(self, call: Call, name: str) -> str:
        """What a caller calls a value that a call gives."""
        if call not in self.split.get((call.caller, name), []):
            return name
        whose = call.callee.split(".")[-1].removesuffix("_block") if call.scan else syntax.dotted(call.node.func)
        return f"{whose.split('.')[-1]}_{name}"

    def wanted(self, call: Call) -> list[str]:
        """The name that a caller has for each value that the callee also returns, `_` where it has no use for it."""
        names = []
        for name in self.returned.get(call.callee, ()):
            used = name in self.returned.get(call.caller, ()) or call.caller in self.values[name].receivers
            names.append(self.taken(call, name) if used else "_")
        return names

    def check_circles(self) -> None:
        """A function that calls itself has no one place for what it carries outward, or for the slice of a layer."""
        steps: dict[str, set[str]] = {}
        for call in self.graph.calls:
            if self.carried(call):
                steps.setdefault(call.caller, set()).add(call.callee)
        try:
            TopologicalSorter(steps).prepare()
        except CycleError as error:
            circle = error.args[1]
            (name, *_) = [n for call in self.graph.calls if call.caller in circle for n in self.carried(call)]
            message = f"{name} is carried through {' -> '.join(circle)}, which calls itself"
            raise LoomError(message, self.graph.functions[circle[0]].where, "Write a loop or a scan.") from None

    def given(self, function: str, name: str) -> str:
        """What a function returns for a value."""
        calls = [c for c in self.split.get((function, name), []) if name in self.returned.get(c.callee, ())]
        names = "".join(f"{self.taken(call, name)}, " for call in calls)
        return f"({names.removesuffix(' ' if len(calls) == 1 else ', ')})" if calls else name
