"""Reads the text of a compiled program, HLO: its computations, and the Python frames of its instructions."""

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
ENDS = re.compile(r"\}\s*(, [\w]+=.*)?$")  # a string that holds a newline may go on with another }
STARTS = re.compile(r"  (?:ROOT )?%?[\w.-]+ = ")
ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\]")
CALLED = re.compile(r"\b(?:calls|to_apply|true_computation|false_computation)=%?([\w.-]+)")
BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute"}
REMEDY = "Give what `python -m PACKAGE.compile --hlo FILE` writes, or the as_text() of a compiled step."
CALLERS = {"fusion", "call", "conditional", "async-start", "while"}  # others apply theirs to each element


class Frame(NamedTuple):
    """A Python frame; columns count from 0."""

    file: str
    line: int
    column: int


@dataclass
class Instruction:
    """An instruction, with what it costs alone.

    Attributes:
        frames: from the innermost outward.
        cycles: by the compiler's estimate, None where it made none.
        calls: computations that it runs.
        rounds: how often; all branches count as run.
        guessed: whether the program does not say how often.
        link: of a collective what it is and its channel, which the parts of an asynchronous one share.
        sent: bytes of its result.
        kernel: the name of the Pallas kernel that it calls.
    """

    name: str
    op: str
    root: bool
    frames: list[Frame]
    cycles: int | None
    calls: list[str]
    rounds: int = 1
    guessed: bool = False
    link: tuple[str, str] | None = None
    sent: int = 0
    kernel: str = ""


@dataclass
class HloModule:
    """A compiled program.

    Attributes:
        computations: name -> instructions.
        entry: the one that is run.
        name: of the program.
        shown: how messages name its file.
    """

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""
    name: str = ""
    shown: str = ""

    @property
    def names(self) -> set[str]:
        """The names of all instructions; a program has none twice."""
        return {each.name for body in self.computations.values() for each in body}


def is_program(path: Path) -> bool:
    """Tells whether a file begins as the text of a program does."""
    with path.open("rb") as file:
        return file.read(9) == b"HloModule"


def read_program(path: Path) -> HloModule:
    """Reads the program in a file."""
    try:
        program = parse_hlo(path.read_bytes().decode("utf-8"))
    except (ValueError, KeyError) as error:  # also what is not UTF-8
        detail = f"it does not define {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise LoomError(f"cannot be read as HLO: {short(detail)}", display_path(path), REMEDY) from None
    program.shown = display_path(path)
    return program


def parse_hlo(text: str) -> HloModule:
    """Reads the text of a program.

    Raises:
        ValueError, KeyError: it is not whole.
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
                raise ValueError(f"an instruction stands outside of a computation: {short(line.strip())}")
            bodies[name].append(line)
        elif name and bodies[name]:
            bodies[name][-1] += line  # of a string or a constant that holds a newline
        elif line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif (row := line.partition(" "))[0].isdecimal():
            table[int(row[0])] = row[2]
    if name or not program.entry:
        raise ValueError(f"it ends inside {name}" if name else "it has no ENTRY computation")
    stacks = _stacks(tables)
    for name, lines in bodies.items():
        matches = [match for match in map(INSTRUCTION.match, lines) if match]
        if len(matches) != len(lines):
            raise ValueError(f"{name} has a line that is no instruction")
        program.computations[name] = [_instruction(match, stacks, bodies) for match in matches]
        if name.startswith("all-reduce-scatter"):  # libtpu's reduce-scatter: an all-reduce, of which it sends a part
            kept = sum(map(_bytes, ARRAY.findall(matches[-1][3])))
            for each in program.computations[name]:
                if each.link:
                    each.link, each.sent = ("reduce-scatter", each.link[1]), kept
    return program


def _stacks(tables: dict[str, dict[int, str]]) -> dict[int, list[Frame]]:
    """Returns the frames of each number that instructions name, from the innermost outward."""
    files = {key: name.strip('"') for key, name in tables.get("FileNames", {}).items()}
    locations = {key: _fields(text) for key, text in tables.get("FileLocations", {}).items()}
    frames = {key: _fields(text) for key, text in tables.get("StackFrames", {}).items()}
    result: dict[int, list[Frame]] = {}
    for key in frames:
        at, stack = key, list[Frame]()
        while at in frames and len(stack) < 1000:  # else they go round
            place = locations.get(frames[at].get("file_location_id", 0), {})
            name = files.get(place.get("file_name_id", 0), "")
            stack.append(Frame(name, place.get("line", 0), place.get("column", 0)))
            # the parent's number is written one too high, so that a frame without one names 1
            at = frames[at].get("parent_frame_id", 1) - 1
        result[key] = stack
    return result


def _fields(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"\b(\w+)=(\d+)\b", text)}


def _instruction(match: re.Match, stacks: dict[int, list[Frame]], bodies: dict[str, list[str]]) -> Instruction:
    root, name, shape, op, rest = match.groups()
    cycles = re.search(r'"estimated_cycles":"(\d+)"', rest)
    result = Instruction(name, op, bool(root), _frames(rest, stacks), int(cycles[1]) if cycles else None, [])
    if op == "while":
        body, condition = (re.search(rf"\b{word}=%?([\w.-]+)", rest) for word in ("body", "condition"))
        if not (body and condition):
            raise ValueError(f"{name} has no body or no condition")
        result.calls = [body[1], condition[1]]
        known = re.search(r"known_trip_count\D{0,9}(\d+)", rest)
        bounds = [int(n) for line in bodies[condition[1]] for n in re.findall(r" constant\((\d+)\)", line)]
        result.guessed = not known and len(bounds) != 1
        result.rounds = int(known[1]) if known else max(bounds, default=1)
    elif op in CALLERS:
        listed = BRANCHES.search(rest)
        result.calls = CALLED.findall(rest) + (re.findall(r"[\w.-]+", listed[1]) if listed else [])
        result.guessed = op == "conditional"
    base = op.removesuffix("-start")
    if base in COLLECTIVES:
        channel = re.search(r"\bchannel_id=(\d+)", rest)
        arrays = ARRAY.findall(shape)
        if op in ("all-gather-start", "collective-permute-start"):  # operands, results, and marks of how far it is
            arrays = [array for array in arrays if array != ("u32", "")]
            arrays = arrays[len(arrays) // 2 :]
        result.link = base, channel[1] if channel else name
        result.sent = sum(map(_bytes, arrays))
    if op == "custom-call" and 'custom_call_target="tpu_custom_call"' in rest:
        result.kernel = name.rstrip(".0123456789")
    return result


def _frames(rest: str, stacks: dict[int, list[Frame]]) -> list[Frame]:
    if number := re.search(r"\bstack_frame_id=(\d+)\b", rest):
        return stacks.get(int(number[1]), [])
    place = re.search(r'\bsource_file="([^"]*)"(?: source_line=(\d+)\b)?', rest)
    return [Frame(place[1], int(place[2] or 0), 0)] if place else []


def _bytes(array: tuple[str, str]) -> int:
    """Counts the bytes of an array such as bf16[4,8]; what is smaller than a byte is counted as its bits."""
    kind, sides = array
    bits = re.search(r"\d+", kind)
    width = 8 if kind == "pred" else int(bits[0]) if bits else 0
    return prod(int(side) for side in sides.split(",") if side) * width // 8
