"""How threaded values travel: the functions that take, pass and return them."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from generator.code import syntax
from generator.code.traced import Edit, Traced
from generator.errors import LoomError
from generator.thread.functions import Call
from generator.thread.graph import CallGraph
from generator.thread.values import Value


@dataclass
class Plan:
    """What threading adds, function by function and call by call. Names are in order of the values."""

    graph: CallGraph
    values: dict[str, Value]
    asked: list[tuple[str, str]]  # function and parameter that asks for a value

    def required(self, function: str) -> list[str]:
        """The parameters that a function gets."""
        return [name for name, value in self.values.items() if function in value.required]

    def optional(self, function: str) -> list[str]:
        """The parameters with a default that a function gets."""
        return [name for name, value in self.values.items() if function in value.optional]

    def provided(self, function: str) -> list[str]:
        """What providers make in a function."""
        return [name for name, value in self.values.items() if function in value.provided]

    def scanned(self, function: str) -> list[str]:
        """What a scanned function takes apart."""
        return [name for name, value in self.values.items() if function in value.scanned]

    def passed(self, call: Call) -> list[str]:
        """The arguments that a call gets."""
        return [name for name, value in self.values.items() if call in value.passed]

    def returned(self, function: str) -> list[str]:
        """What a function also returns."""
        return [name for name, value in self.values.items() if function in value.returned]

    def added(self, function: str) -> list[str]:
        """The names that a function gets."""
        tables = (self.required, self.optional, self.provided, self.scanned, self.returned)
        return list(dict.fromkeys(name for table in tables for name in table(function)))

    def insert(self, offset: int, text: str, name: str, end: int | None = None) -> Edit:
        """Puts in text that is there for a value."""
        return Edit(offset, offset if end is None else end, Traced.insert(text, self.values[name].origin))

    def annotation(self, function: str, name: str) -> str:
        """The type that a value has in a function."""
        kind, depth = self.values[name].annotation, self._depth(function, name)
        if not depth:
            return kind
        inner = kind.removesuffix(" | None")
        return "tuple[" * depth + inner + ", ...]" * depth + kind[len(inner) :]

    def is_stacked(self, call: Call, name: str) -> bool:
        """Whether what a call gives for a value came through scans over layers."""
        returned = self.values[name].returned
        inner = [c for c in self.graph.calls_of(call.callee) if c.callee in returned]
        return call.callee in returned and (call.scan or any(self.is_stacked(c, name) for c in inner))

    def item(self, call: Call, name: str) -> str:
        """A value as a call takes it: one of a tuple, where each of several calls has its own."""
        calls = self.values[name].split.get(call.caller, [])
        return f"{name}[{calls.index(call)}]" if call in calls and self.values[name].per_layer else name

    def result_names(self, call: Call) -> list[str]:
        """The name that a caller has for each value that the callee also returns, `_` where it has no use for it."""
        names = []
        for name in self.returned(call.callee):
            value = self.values[name]
            used = call.caller in value.returned or call.caller in value.receivers
            names.append(self._result_name(call, name) if used else "_")
        return names

    def given(self, function: str, name: str) -> str:
        """What a function returns for a value."""
        value = self.values[name]
        calls = [call for call in value.split.get(function, []) if call.callee in value.returned]
        names = "".join(f"{self._result_name(call, name)}, " for call in calls)
        return f"({names.removesuffix(' ' if len(calls) == 1 else ', ')})" if calls else name

    def check_circles(self) -> None:
        """A function that calls itself has no one place for what it carries outward, or for the slice of a layer."""
        steps: dict[str, set[str]] = {}
        for call in self.graph.calls:
            if any(value.carried(call) for value in self.values.values()):
                steps.setdefault(call.caller, set()).add(call.callee)
        try:
            TopologicalSorter(steps).prepare()
        except CycleError as error:
            circle = error.args[1]
            calls = [call for call in self.graph.calls if call.caller in circle]
            name = next(name for call in calls for name, value in self.values.items() if value.carried(call))
            message = f"{name} is carried through {' -> '.join(circle)}, which calls itself"
            raise LoomError(message, self.graph.functions[circle[0]].where, "Write a loop or a scan.") from None

    def _depth(self, function: str, name: str) -> int:
        """How many tuples are around the value of a layer in a function."""
        carrying = [call for call in self.graph.calls_of(function) if self.values[name].carried(call)]
        below = max((self._depth(call.callee, name) for call in carrying), default=0)
        return below + (function in self.values[name].split)

    def _result_name(self, call: Call, name: str) -> str:
        """What a caller calls a value that a call gives."""
        if call not in self.values[name].split.get(call.caller, []):
            return name
        whose = call.callee.split(".")[-1].removesuffix("_block") if call.scan else syntax.dotted(call.node.func)
        return f"{whose.split('.')[-1]}_{name}"
