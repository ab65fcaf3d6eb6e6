"""What a compiled program costs: the seconds of a step by a stated model, from the program's text.

The model walks through the instructions of one device in the order that the compiler scheduled. Its work is a product,
bound by memory, or a kernel, one after the other. A collective takes the bytes that it sends over the bandwidth of its
group, and a copy to or from host memory its bytes over that of the link to the host. What is started and awaited apart
runs beside the work between, and only what is left then is exposed.
"""

import dataclasses
import functools
import math
import re
from collections import Counter

import numpy as np

from generator.language import splice
from generator.language.roles import Chip, bandwidth, work

BITS = {
    **{"pred": 8, "s4": 4, "u4": 4, "f8": 8, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16},
    **{"s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64},
}  # of an element
COLLECTIVES = "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute"
PARTS = "products", "memory", "kernels", "exposed"  # of a step; the last are waits for collectives and host memory
HOST_MEMORY = "S(5)"  # in the layout of an array
KERNELS = 0.6  # FLOP/s of a kernel of attention or grouped products over those of a plain product


@splice("Chip.fields")
def _():
    link: float  # to another device, bytes a second in one direction
    network: float  # its share of what joins nodes or slices, bytes a second
    host: float  # to or from the memory of its host, bytes a second in one direction
    efficiency: float  # time at the peak over the time that a step takes


@dataclasses.dataclass(frozen=True)
class Instruction:
    name: str
    shape: str  # of its result, which may be a tuple
    kind: str
    operands: list[str]
    text: str  # the rest of its line

    def attribute(self, pattern: str) -> str:
        match = re.search(pattern, self.text)
        return match[1] if match else ""


def arrays(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the dtype and the sides of each array of a shape."""
    arrays = re.findall(r"\b([a-z]+\d*)(?:e\dm\d\w*)?\[([\d,]*)\]", shape)
    return [(dtype, tuple(map(int, filter(None, sides.split(","))))) for dtype, sides in arrays]


def array_bytes(shape: str) -> float:
    return sum(BITS.get(dtype, 0) / 8 * math.prod(sides) for dtype, sides in arrays(shape))


class Program:
    """The computations of a compiled program by name, each a list of instructions in the order in which they run."""

    def __init__(self, text: str):
        self.computations = {}
        self.entry = ""
        lines = []
        for line in text.splitlines():
            if match := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
                lines = self.computations[match[2]] = []
                self.entry = match[2] if match[1] else self.entry
            elif re.match(r"  (ROOT )?%?[\w.\-]+ = ", line):
                lines.append(line)
            elif lines and line != "}":  # a string in the instruction holds a newline
                lines[-1] += line
        self.computations = {name: [*map(self.read, body)] for name, body in self.computations.items()}
        self.shapes = {x.name: x.shape for body in self.computations.values() for x in body}

    def read(self, line: str) -> Instruction:
        name, shape, kind, rest = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-]*)\((.*)", line).groups()
        return Instruction(name, shape, kind, re.findall(r"%([\w.\-]+)", rest.partition(")")[0]), rest)

    def called(self, instruction: Instruction) -> list[Instruction]:
        """Returns the instructions of the computation that a fusion or a call has, or none."""
        return self.computations.get(instruction.attribute(r"(?:calls|to_apply)=%?([\w.\-]+)"), [])

    def flops(self, instruction: Instruction) -> float:
        """Returns those of a product, or of the products in a fusion."""
        if instruction.kind == "dot":
            left = arrays(self.shapes[instruction.operands[0]])[0][1]
            contracted = instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}")
            sides = [left[int(axis)] for axis in filter(None, contracted.split(","))]
            return 2 * math.prod(arrays(instruction.shape)[0][1]) * math.prod(sides)
        return sum(map(self.flops, self.called(instruction))) if instruction.kind == "fusion" else 0

    def has(self, instruction: Instruction, *kinds: str) -> bool:
        return instruction.kind in kinds or any(self.has(inner, *kinds) for inner in self.called(instruction))

    def traffic(self, instruction: Instruction) -> float:
        """Returns the bytes that an instruction reads and writes; of an array that it takes a slice of, only these."""
        body = self.called(instruction)
        if instruction.kind in ("dynamic-slice", "slice", "gather"):
            return 2 * array_bytes(instruction.shape)
        if instruction.kind == "dynamic-update-slice":
            return 2 * array_bytes(self.shapes[instruction.operands[1]])
        if not body:
            return array_bytes(instruction.shape) + sum(array_bytes(self.shapes[x]) for x in instruction.operands)
        source = {x.name: x.operands[0] for x in body if x.kind in ("bitcast", "reshape")}  # the same bytes

        def origin(name: str) -> str:
            return origin(source[name]) if name in source else name

        read = 0.0
        updated = {origin(x.operands[0]): x for x in body if x.kind == "dynamic-update-slice"}
        for parameter in (x for x in body if x.kind == "parameter"):
            uses = [x for x in body if parameter.name in map(origin, x.operands) and x.name not in source]
            if uses and all(x.kind in ("dynamic-slice", "slice", "gather") for x in uses):
                read += sum(array_bytes(x.shape) for x in uses)
            elif parameter.name not in updated:
                read += array_bytes(parameter.shape)
        written = [array_bytes(self.shapes[x.operands[1]]) for x in updated.values()]
        total = sum(array_bytes(x.shape) for x in updated.values())
        return read + sum(written) + max(array_bytes(instruction.shape) - total, 0)


def first_group(text: str, devices: int) -> list[int]:
    """Returns the devices of the first group of a collective, in any of the ways in which groups are written."""
    if match := re.search(r"source_target_pairs=\{\{(\d+),(\d+)\}", text):
        return [int(match[1]), int(match[2])]
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return [int(x) for x in match[1].split(",")]
    if match := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        groups, sides, order = ([int(y) for y in x.split(",")] if x else None for x in match.groups())
        return np.arange(devices).reshape(sides).transpose(order).reshape(groups)[0].tolist()
    mesh = r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{(.*?)\}"
    if match := re.search(mesh, text):
        axes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", match[1])}
        ids = np.arange(devices)
        if match[2]:
            ids = ids.reshape([int(x) for x in match[2].split(",")]).transpose([int(x) for x in match[3].split(",")])
        grid = ids.reshape([*axes.values()])
        return grid[tuple(slice(None) if f"'{name}'" in match[4] else 0 for name in axes)].ravel().tolist()
    return list(range(devices))


def sent(program: Program, instruction: Instruction, base: str, size: int) -> float:
    """Returns the bytes that pass through a device, each once, in a collective of `size` devices."""
    total = max(array_bytes(program.shapes[x]) for x in instruction.operands)
    summed = sum(array_bytes(program.shapes[x]) for x in instruction.operands)
    share = (size - 1) / size
    of_operands = {"all-gather": size * share, "all-reduce": 2 * share, "reduce-scatter": share, "all-to-all": share}
    return summed * of_operands[base] if base in of_operands else total


def grouped_flops(arrays: list[tuple[str, tuple[int, ...]]]) -> float:
    """Returns the FLOPs of the products of all rows [M, K] with the kernels [E, K, N] of their groups."""
    _, K, N = max((sides for _, sides in arrays if len(sides) == 3), key=math.prod, default=(0, 1, 0))
    rows = [math.prod(sides) // K for _, sides in arrays if len(sides) == 2 and K in sides]
    return 2 * max(rows, default=0) * K * N


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a device does in a step: seconds of each of PARTS, and the kernels that have no price."""

    parts: Counter[str] = dataclasses.field(default_factory=Counter)
    unknown: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: "Cost", times: int = 1) -> None:
        self.parts.update({name: times * seconds for name, seconds in other.parts.items()})
        self.unknown.update({name: times * count for name, count in other.unknown.items()})

    @property
    def seconds(self) -> float:
        return sum(self.parts[name] for name in PARTS)

    def text(self) -> str:
        parts = ", ".join(f"{self.parts[name]:.3g} {name}" for name in PARTS)
        left = ", ".join(["", *(f"{count} x {name}" for name, count in self.unknown.items())])
        return (
            f"predicted: {self.seconds:.4g} s a step: {parts}; all collectives {self.parts['collectives']:.3g}, "
            f"host memory {self.parts['host']:.3g}\nleft out: the host, its data, stragglers{left}"
        )


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What passes between devices, or between a device and its host, in an instruction that starts or awaits it."""

    key: str  # of the instructions that start it and await it
    way: str  # transfers of one way go one after the other
    seconds: float
    starts: bool = True
    ends: bool = True


def host_transfer(x: Instruction, chip: Chip) -> Transfer | None:
    """Returns the start of a copy to or from host memory, whole or of a slice."""
    if HOST_MEMORY not in x.shape or not x.kind.endswith(("slice-start", "copy-start")):
        return None
    copied = min(math.prod(sides) * BITS[dtype] / 8 for dtype, sides in arrays(x.shape) if sides)
    out = "update" in x.kind or (x.kind == "copy-start" and HOST_MEMORY in x.shape.partition("}")[0])
    return Transfer(x.name, "out" if out else "in", copied / chip.host, ends=False)


def step_cost(text: str, chip: Chip, places: list[tuple[int, ...]]) -> Cost:
    """Computes what a run of a compiled program costs on devices at these places: coordinates, or node and number."""
    program = Program(text)

    def collective(key: str, x: Instruction, base: str, starts: bool = True, ends: bool = True) -> Transfer:
        group = [places[device] for device in first_group(x.text, len(places))]
        seconds = sent(program, x, base, len(group)) / bandwidth(group, base, chip, places) if starts else 0
        return Transfer(key, "devices", seconds, starts, ends)

    def transfer(x: Instruction, ends: dict[str, float]) -> Transfer | None:
        base = x.kind.removesuffix("-start")
        if x.kind.endswith("-done") and x.operands[0] in ends:
            return Transfer(x.operands[0], "", 0, starts=False)
        if base in COLLECTIVES:
            return collective(x.name, x, base, ends=base == x.kind)
        inner = next((y for y in program.called(x) if x.kind == "fusion" and y.kind in COLLECTIVES), None)
        if not inner:
            return host_transfer(x, chip)
        # libtpu spreads a collective over fusions of one channel: that which starts it, products beside it, and an end.
        # Its reduce-scatter is a fusion of an all-reduce and a slice
        channel = "channel " + inner.attribute(r"channel_id=(\d+)")
        base = "reduce-scatter" if inner.kind == "all-reduce" else inner.kind
        asynchronous = next((y for y in program.called(x) if "AsyncCollective" in y.text), None)
        if asynchronous:
            starts = "AsyncCollectiveStart" in asynchronous.text
            return collective(channel, inner, base, starts, not starts)
        if channel not in ends and inner.kind == "all-reduce":
            return collective(x.name, dataclasses.replace(x, text=inner.text), base)
        return None

    @functools.cache
    def cost(name: str) -> Cost:
        total = Cost()
        ends: dict[str, float] = {}  # of transfers
        busy: dict[str, float] = {}  # until when each way is
        for x in program.computations[name]:
            if x.kind == "while":
                trips = x.attribute(r"known_trip_count[^0-9]*(\d+)")
                condition = program.computations[x.attribute(r"condition=%?([\w.\-]+)")]
                bounds = [int(y.text.partition(")")[0]) for y in condition if re.match(r"\d+\)", y.text)]
                total.add(cost(x.attribute(r"body=%?([\w.\-]+)")), int(trips) if trips else max(bounds, default=1))
            elif x.kind in ("call", "conditional"):
                called = re.findall(r"(?:to_apply|branch_computations|\w+_computation)=\{?%?([\w.\-]+)", x.text)
                total.add(max(map(cost, called), key=lambda y: y.seconds))
            elif moved := transfer(x, ends):
                if moved.starts:
                    total.parts["collectives" if moved.way == "devices" else "host"] += moved.seconds
                    busy[moved.way] = max(busy.get(moved.way, 0), total.seconds) + moved.seconds
                    ends[moved.key] = busy[moved.way]
                if moved.ends:
                    total.parts["exposed"] += max(ends.get(moved.key, 0) - total.seconds, 0)
            else:
                kind, seconds = work(program, x, chip)
                if kind == "unknown":
                    total.unknown[re.sub(r"[.\d]+$", "", x.name)] += 1
                elif kind:
                    total.parts[kind] += seconds / chip.efficiency
        return total

    return cost(program.entry)
