"""Verdicts: what the facts of two versions of a package say about each of its entry points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SAME_TEXT, SAME_PROGRAM, EQUAL_VALUES = "same text", "same program", "equal values"
OTHER_NUMBERS, OTHER_PARAMETERS, OTHER_LAYOUT = "other numbers", "other parameters", "other layout"
OTHER_INTERFACE, UNDECIDED = "other interface", "undecided"
VERDICTS = (
    SAME_TEXT,
    SAME_PROGRAM,
    EQUAL_VALUES,
    OTHER_NUMBERS,
    OTHER_PARAMETERS,
    OTHER_LAYOUT,
    OTHER_INTERFACE,
    UNDECIDED,
)
TRAINING, EVALUATION, DECODING, INITIAL = "training step", "evaluation", "prefill and decode", "initial parameters"
PROGRAMS = TRAINING, EVALUATION, DECODING, INITIAL
CHECKPOINTS, INTERFACE = "parameters and checkpoint names", "configuration and command line"
HOST = "code on the host"
ENTRIES = (*PROGRAMS, CHECKPOINTS, INTERFACE)
MOST = 6  # differences that a detail names

Facts = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """What is known about one entry point of a package.

    Attributes:
        verdict: one of VERDICTS.
        detail: how it is known, or what differs.
        numbers: how far results are apart, by what they are of.
    """

    entry: str
    verdict: str
    detail: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass
class Compared:
    """What facts say alone, and what has to be run.

    Attributes:
        to_run: entry points whose programs differ -> the variants to run, until one gives other numbers.
    """

    findings: list[Finding]
    to_run: dict[str, list[str]] = field(default_factory=dict)


def compare(before: Facts, after: Facts) -> Compared:
    """Gives the verdict of each entry point except those whose values have to be compared."""
    for side, facts in (("before", before), ("after", after)):
        if "undecided" in facts:
            return Compared(
                [Finding(entry, UNDECIDED, f"{side} the change, {facts['undecided']}") for entry in ENTRIES]
            )
    result = Compared([])
    for entry in PROGRAMS:
        _program(entry, before, after, result)
    result.findings += _layout(before, after, result)
    result.findings += [_checkpoints(before["parameters"], after["parameters"]), _interface(before, after)]
    result.findings += [*_named_policies(before, after), *_device(before["device"], after["device"])]
    other = {finding.entry for finding in result.findings if finding.verdict != SAME_PROGRAM}
    result.findings = [it for it in result.findings if it.verdict != SAME_PROGRAM or it.entry not in other]
    return result


def _program(entry: str, before: Facts, after: Facts, result: Compared) -> None:
    """Adds a finding about an entry point, or the run that it needs."""
    variants = [name for name in before["variants"] if name in after["variants"]]
    sides = before["programs"].get(entry, {}), after["programs"].get(entry, {})
    differing, takes = [], set()
    for variant in variants:
        old, new = (side.get(variant, {}) for side in sides)
        for part in sorted(old.keys() | new.keys()):
            pair = [side.get(part, {"undecided": "there is no such program"}) for side in (old, new)]
            if reason := _reason(pair):
                result.findings.append(Finding(entry, UNDECIDED, f"{part}: {reason}"))
                return
            if pair[0]["digest"] != pair[1]["digest"]:
                differing += [variant] if variant not in differing else []
                takes |= set(_differences(pair[0]["takes"], pair[1]["takes"]))
    if not differing:
        lost = sorted(before["variants"].keys() ^ after["variants"].keys())
        if lost or not variants:
            result.findings.append(Finding(entry, UNDECIDED, f"only one side has the preset: {', '.join(lost)}"))
        else:
            result.findings.append(Finding(entry, SAME_PROGRAM, f"equal jaxprs: {'; '.join(variants)}"))
    elif any(_trees_differ(before, after, variant) for variant in differing):
        result.findings.append(Finding(entry, OTHER_PARAMETERS, f"see {CHECKPOINTS}"))
    elif takes:
        result.findings.append(Finding(entry, OTHER_INTERFACE, f"takes other arrays: {_few(sorted(takes))}"))
    else:
        tiny = [variant for variant in differing if variant.startswith("tiny")]
        exact = [variant for variant in tiny if before["variants"][variant] == "float32"]
        dtypes = {facts["variants"][variant] for facts in (before, after) for variant in tiny[:1]}
        if not tiny:
            reason = f"jaxprs differ at {', '.join(differing)} alone, which is too large to run"
            result.findings.append(Finding(entry, UNDECIDED, reason))
        elif len(dtypes) > 1:
            result.findings.append(
                Finding(entry, OTHER_NUMBERS, f"computes in another dtype: {', '.join(sorted(dtypes))}")
            )
        else:
            result.to_run[entry] = exact[::-1] or tiny[:1]  # what has all switched on says most


def _reason(pair: list[Facts]) -> str:
    """Why one of two facts is not known."""
    sides = zip(("before", "after"), pair, strict=True)
    return "; ".join(f"{side} the change, {it['undecided']}" for side, it in sides if "undecided" in it)


def _trees_differ(before: Facts, after: Facts, variant: str) -> bool:
    pair = [facts["parameters"].get(variant, {}) for facts in (before, after)]
    return any(pair[0].get(part) != pair[1].get(part) for part in ("model", "training"))


def _layout(before: Facts, after: Facts, result: Compared) -> list[Finding]:
    """How arrays lie on devices; where a program is another one, only what it says about that counts."""
    pair = [before["layout"], after["layout"]]
    if reason := _reason(pair):
        return [Finding(TRAINING, UNDECIDED, f"on 8 devices: {reason}")]
    old, new = pair
    findings = []
    same = {finding.entry for finding in result.findings if finding.verdict == SAME_PROGRAM}
    if _trees_differ(before, after, "tiny"):
        same = set()  # which take other arrays than before: that is said already
    # and what is said of other arrays is something else
    others = {finding.entry for finding in result.findings if finding.verdict in (OTHER_INTERFACE, OTHER_PARAMETERS)}
    arrays = [
        f"{name} {spec} -> {new['arrays'][name]}"
        for name, spec in old["arrays"].items()
        if new["arrays"].get(name, spec) != spec and not name.startswith("state.opt_state")
    ]
    for entry in (TRAINING, EVALUATION):
        if old["mesh"] != new["mesh"]:
            findings.append(Finding(entry, OTHER_LAYOUT, f"fits a mesh of {old['mesh']} -> {new['mesh']}"))
        elif arrays:
            findings.append(Finding(entry, OTHER_LAYOUT, _few(arrays)))
        elif old["programs"][entry] != new["programs"][entry] and entry in same:
            detail = (
                "constraints or collectives"
                if old["places"][entry] != new["places"][entry]
                else "donated arrays, or the layout of results,"
            )
            findings.append(Finding(entry, OTHER_LAYOUT, f"{detail} on a mesh of {old['mesh']}"))
        elif old["places"][entry] != new["places"][entry] and entry not in same | others:
            findings.append(Finding(entry, OTHER_LAYOUT, f"constraints or collectives on a mesh of {old['mesh']}"))
    return findings


def _named_policies(before: Facts, after: Facts) -> list[Finding]:
    """What --remat can name: the programs that are traced have some of it."""
    if reason := _reason([before["remat"], after["remat"]]):
        return [Finding(TRAINING, UNDECIDED, f"parallel.REMAT: {reason}")]
    if found := _differences(before["remat"], after["remat"]):
        traced = {
            "full",
            *before["interface"].get("presets", {}).get("tiny", {}).get("remat", "").strip("'").split(","),
        }
        names = sorted({line.split(":")[0] for line in found} - traced)
        if not names:
            return []
        return [Finding(TRAINING, UNDECIDED, f"what --remat {', '.join(names)} keeps differs, and is not traced")]
    return []


def _device(before: Facts, after: Facts) -> list[Finding]:
    """The steps that an engine takes: how many texts, of which lengths."""
    if reason := _reason([before, after]):
        return [Finding(DECODING, UNDECIDED, f"the device of an engine: {reason}")]
    found = _differences(before, after)
    return [Finding(DECODING, OTHER_INTERFACE, f"takes other steps: {_few(found)}")] if found else []


def _checkpoints(before: Facts, after: Facts) -> Finding:
    pairs = [(before[variant], after[variant]) for variant in before if variant in after]
    for pair in pairs:
        if reason := _reason(list(pair)):
            return Finding(CHECKPOINTS, UNDECIDED, reason)
    model = [line for old, new in pairs for line in _differences(old["model"], new["model"])]
    training = [line for old, new in pairs for line in _differences(old["training"], new["training"])]
    settings = [line for old, new in pairs[:1] for line in sorted({*old["settings"]} ^ {*new["settings"]})]
    tiny = pairs[0]
    tensors = _differences(*({name: row[0] for name, row in side["tensors"].items()} for side in tiny))
    whole = all(
        {f"model.{name}" for row in side["tensors"].values() for name in row[1]} == {*side["model"]} for side in tiny
    )
    if model:
        loads = "load with conversion, by export and import" if whole and not tensors else "do not load"
        return Finding(CHECKPOINTS, OTHER_PARAMETERS, f"old checkpoints {loads}: {_few(model)}")
    if tensors:
        return Finding(CHECKPOINTS, OTHER_PARAMETERS, f"Hugging Face checkpoints have other tensors: {_few(tensors)}")
    if any(old["tensors"] != new["tensors"] for old, new in pairs):
        return Finding(CHECKPOINTS, OTHER_PARAMETERS, "Hugging Face tensors hold other numbers of the parameters")
    if settings:
        return Finding(CHECKPOINTS, OTHER_PARAMETERS, f"config.json: {_few(settings)}")
    if training:
        detail = f"old checkpoints load as weights, and do not continue a run: {_few(training)}"
        return Finding(CHECKPOINTS, OTHER_PARAMETERS, detail)
    return Finding(CHECKPOINTS, SAME_PROGRAM, "the same names, shapes, dtypes and tensors")


def _interface(before: Facts, after: Facts) -> Finding:
    pair = [before["interface"], after["interface"]]
    if reason := _reason(pair):
        return Finding(INTERFACE, UNDECIDED, reason)
    found = _differences(*(_flat("", side) for side in pair))
    if found:
        return Finding(INTERFACE, OTHER_INTERFACE, _few(found))
    return Finding(INTERFACE, SAME_PROGRAM, "the same fields, defaults, presets, flags and exports")


def _flat(prefix: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {prefix: ", ".join(map(str, value)) if isinstance(value, list) else str(value)}
    result: dict[str, str] = {}
    for name, inner in value.items():
        result |= _flat(f"{prefix}.{name}" if prefix else name, inner)
    return result


def _differences(before: Facts, after: Facts) -> list[str]:
    """What two tables have otherwise."""
    result = []
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            old, new = (str(side[name]) if name in side else "absent" for side in (before, after))
            result.append(f"{name}: {old} -> {new}")
    return result


def _few(lines: list[str]) -> str:
    lines = list(dict.fromkeys(lines))
    more = f"; and {len(lines) - MOST} more" if len(lines) > MOST else ""
    return "; ".join(line[:160] for line in lines[:MOST]) + more
