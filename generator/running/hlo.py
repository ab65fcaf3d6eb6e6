"""Reads the text of a compiled program in HLO: its computations, and the Python frames of its instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

from generator.disk.files import display_path
from generator.errors import LoomError, short

COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\) -> .*\{$")
INSTRUCTION = re.compile(r"  (ROOT )?%?([\w.-]+) = (.*?) ([a-z][a-z-]*)\((.*)", re.DOTALL)
ENDS = re.compile(r"\}\s*(, [\w]+=.*)?$")  # a string with a newline may continue with another }
STARTS = re.compile(r"  (?:ROOT )?%?[\w.-]+ = ")
ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\]")
CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation)=%?([\w.-]+)")
BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute"}
REMEDY = "Give what `python -m PACKAGE.compile --hlo FILE` writes, or the as_text() of a compiled step."
CALLERS = {"fusion", "call", "conditional", "async-start", "while"}  # others apply computations to each element


class Frame(NamedTuple):
    """A Python frame; its column is from 0."""

    file: str
    line: int
    column: int


@dataclass
class Instruction:
    """An instruction, with its own cost.

    Attributes:
        frames: from the innermost outward.
        cycles: the compiler's estimate, None if it made none.
        calls: computations that it runs.
        trips: how often it runs them; each branch counts as run.
        is_guessed: whether the program does not say how often.
        channel: kind and channel of a collective; the parts of an asynchronous one share it.
        sent: bytes of the result of a collective.
        kernel: name of the Pallas kernel that it calls.
    """

    name: str
    op: str
    is_root: bool
    frames: list[Frame]
    cycles: int | None
    calls: list[str]
    trips: int = 1
    is_guessed: bool = False
    channel: tuple[str, str] | None = None
    sent: int = 0
    kernel: str = ""


@dataclass
class HloModule:
    """A compiled program.

    Attributes:
        computations: name -> instructions.
        entry: name of the computation that runs first.
        shown: path of its file, for messages.
    """

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""
    name: str = ""
    shown: str = ""

    @property
    def names(self) -> set[str]:
        """Returns the names of all instructions, which are unique in a program."""
        return {each.name for body in self.computations.values() for each in body}


def is_program(path: Path) -> bool:
    """Returns whether a file begins like the text of a program."""
    with path.open("rb") as file:
        return file.read(9) == b"HloModule"


def read_program(path: Path) -> HloModule:
    """Reads the program in a file."""
    try:
        program = parse_hlo(path.read_bytes().decode("utf-8"))
    except (ValueError, KeyError) as error:  # UnicodeDecodeError is a ValueError
        detail = f"it does not define {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise LoomError(f"cannot be read as HLO: {short(detail)}", display_path(path), REMEDY) from None
    program.shown = display_path(path)
    return program


def parse_hlo(text: str) -> HloModule:
    """Reads the text of a program.

    Raises:
        ValueError, KeyError: it is incomplete.
    """
    program, tables, bodies = HloModule(), dict[str, dict[int, str]](), dict[str, list[str]]()
    name, table = "", dict[int, str]()
    for line in text.split("\n"):
        if not name and line.endswith("{") and (start := COMPUTATION.match(line)):
            name = start[2]
            bodies[name] = []
            program.entry = name if start[1] else program.entry
        elif name and ENDS.match(line):
            name = ""
        elif STARTS.match(line):
            if not name:
                raise ValueError(f"an instruction is outside of a computation: {short(line.strip())}")
            bodies[name].append(line)
        elif name and bodies[name]:
            bodies[name][-1] += line  # the rest of a string or a constant with a newline
        elif line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif (row := line.partition(" "))[0].isdecimal():
            table[int(row[0])] = row[2]
    if name or not program.entry:
        raise ValueError(f"it ends inside {name}" if name else "it has no ENTRY computation")
    stacks = _read_stacks(tables)
    for name, lines in bodies.items():
        matches = [match for match in map(INSTRUCTION.match, lines) if match]
        if len(matches) != len(lines):
            raise ValueError(f"{name} has a line that is not an instruction")
        program.computations[name] = [_read_instruction(match, stacks, bodies) for match in matches]
        if name.startswith("all-reduce-scatter"):  # libtpu's reduce-scatter: an all-reduce, of which a part is sent
            part = sum(map(_count_bytes, ARRAY.findall(matches[-1][3])))
            for each in program.computations[name]:
                if each.channel:
                    each.channel, each.sent = ("reduce-scatter", each.channel[1]), part
    return program


def _read_stacks(tables: dict[str, dict[int, str]]) -> dict[int, list[Frame]]:
    """Returns, for each stack number of instructions, its frames from the innermost outward."""
    files = {key: name.strip('"') for key, name in tables.get("FileNames", {}).items()}
    locations = {key: _parse_numbers(text) for key, text in tables.get("FileLocations", {}).items()}
    frames = {key: _parse_numbers(text) for key, text in tables.get("StackFrames", {}).items()}
    result: dict[int, list[Frame]] = {}
    for key in frames:
        at, stack = key, list[Frame]()
        while at in frames and len(stack) < 1000:  # a damaged table may have a cycle
            place = locations.get(frames[at].get("file_location_id", 0), {})
            name = files.get(place.get("file_name_id", 0), "")
            stack.append(Frame(name, place.get("line", 0), place.get("column", 0)))
            # XLA writes the parent's number plus one; 1 means that there is none
            at = frames[at].get("parent_frame_id", 1) - 1
        result[key] = stack
    return result


def _parse_numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"\b(\w+)=(\d+)\b", text)}


def _read_instruction(match: re.Match, stacks: dict[int, list[Frame]], bodies: dict[str, list[str]]) -> Instruction:
    """Returns the instruction in a line; `bodies` has the lines of all computations."""
    root, name, shape, op, rest = match.groups()
    cycles = re.search(r'"estimated_cycles":"(\d+)"', rest)
    result = Instruction(name, op, bool(root), _read_frames(rest, stacks), int(cycles[1]) if cycles else None, [])
    if op == "while":
        body, condition = (re.search(rf"\b{word}=%?([\w.-]+)", rest) for word in ("body", "condition"))
        if not (body and condition):
            raise ValueError(f"{name} has no body or no condition")
        result.calls = [body[1], condition[1]]
        known = re.search(r"known_trip_count\D{0,9}(\d+)", rest)
        bounds = [int(n) for line in bodies[condition[1]] for n in re.findall(r" constant\((\d+)\)", line)]
        result.is_guessed = not known and len(bounds) != 1
        result.trips = int(known[1]) if known else max(bounds, default=1)
    elif op in CALLERS:
        listed = BRANCHES.search(rest)
        result.calls = CALLED.findall(rest) + (re.findall(r"[\w.-]+", listed[1]) if listed else [])
        result.is_guessed = op == "conditional"
    base = op.removesuffix("-start")
    if base in COLLECTIVES:
        channel = re.search(r"\bchannel_id=(\d+)", rest)
        arrays = ARRAY.findall(shape)
        if op in ("all-gather-start", "collective-permute-start"):  # operands, results, and u32 states
            arrays = [array for array in arrays if array != ("u32", "")]
            arrays = arrays[len(arrays) // 2 :]
        result.channel = base, channel[1] if channel else name
        result.sent = sum(map(_count_bytes, arrays))
    if op == "custom-call" and 'custom_call_target="tpu_custom_call"' in rest:
        result.kernel = name.rstrip(".0123456789")
    return result


def _read_frames(rest: str, stacks: dict[int, list[Frame]]) -> list[Frame]:
    if number := re.search(r"\bstack_frame_id=(\d+)\b", rest):
        return stacks.get(int(number[1]), [])
    place = re.search(r'\bsource_file="([^"]*)"(?: source_line=(\d+)\b)?', rest)
    return [Frame(place[1], int(place[2] or 0), 0)] if place else []


def _count_bytes(array: tuple[str, str]) -> int:
    """Returns the bytes of an array such as bf16[4,8]; types below a byte count by their bits."""
    kind, sides = array
    bits = re.search(r"\d+", kind)
    width = 8 if kind == "pred" else int(bits[0]) if bits else 0
    return prod(int(side) for side in sides.split(",") if side) * width // 8
