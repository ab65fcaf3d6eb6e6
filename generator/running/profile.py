"""Reads a profile of JAX (*.xplane.pb, an XSpace): the programs that ran, and the time of each of their instructions.

Where a profile says what ran depends on the device. GPUs have a line for each stream, whose kernels name their
instruction; CPUs one for each thread. TPUs have a line "XLA Ops", where a loop lies over what it runs, and "XLA
Modules", which says whose instructions these are. Other lines tell the same time again.
"""

from __future__ import annotations

import warnings
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from generator.disk.look import show
from generator.errors import LoomError, short
from generator.running.hlo import REMEDY, Program, parse


class Ran(NamedTuple):
    """How often an instruction ran, and how long, without what ran inside of it."""

    times: int
    nanoseconds: int


@dataclass
class Profile:
    """What ran.

    Attributes:
        programs: name -> program, where the name has a number, such as `jit_train_step(3)`.
        ran: (program, instruction) -> how long, on all devices.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    ran: dict[tuple[str, str], Ran] = field(default_factory=dict)


class Span(NamedTuple):
    """An instruction that ran."""

    begin: float
    end: float
    key: tuple[str, str]


def read_profile(path: Path) -> Profile:
    """The profile in a file."""
    profile, data = Profile(), path.read_bytes()
    remedy = f"{REMEDY} Or an *.xplane.pb of --profile-steps."
    try:
        modules = dict(_modules(memoryview(data)))
    except (IndexError, ValueError):
        modules = {}
    if not modules:
        raise LoomError("is neither the text of an HLO module nor a whole profile with programs", show(path), remedy)
    try:
        from jax.profiler import ProfileData
        from jaxlib.xla_client import hlo  # type: ignore[attr-defined]
    except ImportError:
        install = "Install it: in a clone of Loomax, pip install -e '.[packages]'."
        raise LoomError("JAX, which reads profiles, is not installed", show(path), install) from None
    try:
        for name, module in modules.items():
            profile.programs[name] = parse(hlo.HloModule.from_serialized_hlo_module_proto(module).to_string())
        planes = list(ProfileData.from_serialized_xspace(data).planes)
    except Exception as error:  # whatever XLA makes of other bytes
        raise LoomError(f"cannot be read as a profile: {short(str(error))}", show(path), remedy) from None
    for program in profile.programs.values():
        program.shown = show(path)
    # Python 3.12 warns of a type of JAX's reader, which aborts where warnings are errors
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        for plane, line in ((each, line) for each in planes for line in each.lines):
            if _counts(plane.name, line.name):
                spans = _spans(plane, line, profile.programs)
                _add(profile, sorted(spans, key=lambda span: (span.begin, -span.end)))
    if not profile.ran:
        raise LoomError("is a profile in which no instruction of a program ran", show(path))
    return profile


def _counts(plane: str, line: str) -> bool:
    if plane.startswith("/device:GPU"):
        return line.startswith("Stream")
    return line == "XLA Ops" or not plane.startswith("/device:TPU")


def _spans(plane: Any, line: Any, programs: dict[str, Program]) -> Iterator[Span]:
    """The instructions of a line, with the programs that they are of, '' where the profile does not hold it."""
    modules = sorted((m.start_ns, m.name) for other in plane.lines if other.name == "XLA Modules" for m in other.events)
    for event in line.events:
        stats = dict(event.stats)
        if "hlo_op" in stats:
            name, module = stats["hlo_op"], f"{stats.get('hlo_module')}({stats.get('program_id')})"
        elif line.name == "XLA Ops":
            before = bisect(modules, event.start_ns, key=lambda module: module[0])
            name, module = event.name.removeprefix("%").partition(" ")[0], modules[before - 1][1] if before else ""
        else:
            continue
        yield Span(event.start_ns, event.start_ns + event.duration_ns, (module if module in programs else "", name))


def _add(profile: Profile, spans: list[Span]) -> None:
    """Counts instructions of one line, by their beginning: what runs inside of another is no time of that one."""
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end <= span.begin:
            around.pop()
        length = round(span.end - span.begin)
        if around:
            times, before = profile.ran[around[-1].key]
            profile.ran[around[-1].key] = Ran(times, before - length)
        times, before = profile.ran.get(span.key, (0, 0))
        profile.ran[span.key] = Ran(times + 1, before + length)
        around.append(span)


def _modules(data: memoryview) -> Iterator[tuple[str, bytes]]:
    """The names of the programs that a profile holds, as events of its plane /host:metadata, and their HloModuleProto.

    The numbers of fields are those of xplane.proto and hlo.proto of XLA; JAX's reader does not show events that lie on
    no line.
    """
    for plane in _fields(data, 1):
        if [bytes(name) for name in _fields(plane, 2)] != [b"/host:metadata"]:
            continue
        for event in (event for entry in _fields(plane, 4) for event in _fields(entry, 2)):
            (name,) = _fields(event, 2)
            protos = (proto for stat in _fields(event, 5) for proto in _fields(stat, 6))
            for module in (module for proto in protos for module in _fields(proto, 1)):
                yield bytes(name).decode(), bytes(module)


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The fields of a number in a message of Protocol Buffers, those that have a length.

    Raises:
        IndexError, ValueError: it is not whole, or no message.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            varint()
        elif tag & 7 in (1, 2, 5):
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            if at + size > len(message):
                raise ValueError("it ends inside a field")
            if tag == wanted << 3 | 2:
                yield message[at : at + size]
            at += size
        else:
            raise ValueError(f"a field of the kind {tag & 7}")
