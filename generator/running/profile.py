"""Reads a profile of JAX (*.xplane.pb, an XSpace): the programs that ran, and the time of each instruction.

The place of instructions in a profile depends on the device. GPUs have a line for each stream, whose kernels name their
instruction; CPUs have one for each thread. TPUs have a line "XLA Ops", in which the event of a loop encloses those of
its body, and a line "XLA Modules" with the programs. Other lines have the same time again.
"""

from __future__ import annotations

import warnings
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from generator.disk.files import display_path
from generator.errors import LoomError, short
from generator.running.hlo import REMEDY, HloModule, parse_hlo

try:
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet
    from jax.profiler import ProfileData

    try:
        from jaxlib.xla_client import hlo  # type: ignore[attr-defined]
    except ImportError:  # before jaxlib 0.10.2
        from jaxlib import _jax as hlo
except ImportError:
    _REMEDY = "Install it: in a clone of Loomax, pip install -e '.[packages]'."
    raise LoomError("JAX, which reads profiles, is not installed", remedy=_REMEDY) from None


@dataclass
class Profile:
    """The programs that ran.

    Attributes:
        programs: name with a number, such as `jit_train_step(3)` -> program.
        runs: program, "" for those that are missing -> instruction -> number of runs and nanoseconds on all devices,
            without the time of instructions inside it.
    """

    programs: dict[str, HloModule] = field(default_factory=dict)
    runs: dict[str, dict[str, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))


class Span(NamedTuple):
    """A run of an instruction; times are in nanoseconds."""

    begin: float
    end: float
    program: str
    name: str


def read_profile(path: Path) -> Profile:
    """Reads the profile in a file."""
    profile, data = Profile(), path.read_bytes()
    remedy = f"{REMEDY} Or an *.xplane.pb of --profile-steps."
    try:
        modules = dict(_read_modules(data))
    except (DecodeError, ValueError):
        modules = {}
    if not modules:
        raise LoomError(
            "is neither the text of an HLO module nor a whole profile with programs", display_path(path), remedy
        )
    try:
        for name, module in modules.items():
            text = hlo.HloModule.from_serialized_hlo_module_proto(module).to_string()
            profile.programs[name] = replace(parse_hlo(text), name=name, shown=display_path(path))
        planes = list(ProfileData.from_serialized_xspace(data).planes)
    except Exception as error:  # XLA raises anything for other bytes
        raise LoomError(f"cannot be read as a profile: {short(str(error))}", display_path(path), remedy) from None
    # Python 3.12 warns of a type of JAX's reader, which aborts if warnings are errors
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        for plane, line in ((each, line) for each in planes for line in each.lines):
            if _has_instructions(plane.name, line.name):
                spans = _read_spans(plane, line, profile.programs)
                _add_spans(profile, sorted(spans, key=lambda span: (span.begin, -span.end)))
    if not profile.runs:
        raise LoomError("is a profile in which no instruction of a program ran", display_path(path))
    return profile


def _has_instructions(plane: str, line: str) -> bool:
    if plane.startswith("/device:GPU"):
        return line.startswith("Stream")
    return line == "XLA Ops" or not plane.startswith("/device:TPU")


def _read_spans(plane: Any, line: Any, programs: dict[str, HloModule]) -> Iterator[Span]:
    """Yields the spans of a line, with their programs, '' for a program that is not in the profile."""
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
        yield Span(event.start_ns, event.start_ns + event.duration_ns, module if module in programs else "", name)


def _add_spans(profile: Profile, spans: list[Span]) -> None:
    """Adds the spans of one line, sorted by begin; the time of a span is subtracted from the one around it."""
    enclosing: list[Span] = []

    def add(span: Span, times: int, nanoseconds: int) -> None:
        runs = profile.runs[span.program]
        before = runs.get(span.name, (0, 0))
        runs[span.name] = before[0] + times, before[1] + nanoseconds

    for span in spans:
        while enclosing and enclosing[-1].end <= span.begin:
            enclosing.pop()
        length = round(span.end - span.begin)
        if enclosing:
            add(enclosing[-1], 0, -length)
        add(span, 1, length)
        enclosing.append(span)


def _read_modules(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields name and proto of each program in a profile, which are events of its plane /host:metadata.

    The field numbers are those of XLA's xplane.proto and hlo.proto; JAX's reader omits events that are on no line.
    """
    for plane in _proto_fields(data, 1):
        if _proto_fields(plane, 2) != [b"/host:metadata"]:
            continue
        for event in (event for entry in _proto_fields(plane, 4) for event in _proto_fields(entry, 2)):
            (name,) = _proto_fields(event, 2)
            protos = (proto for stat in _proto_fields(event, 5) for proto in _proto_fields(stat, 6))
            for module in (module for proto in protos for module in _proto_fields(proto, 1)):
                yield name.decode(), module


def _proto_fields(message: bytes, number: int) -> list[bytes]:
    """Returns the fields with a number of a Protocol Buffers message, without its schema."""
    fields = UnknownFieldSet(Empty.FromString(message))
    return [field.data for field in fields if field.field_number == number and isinstance(field.data, bytes)]
