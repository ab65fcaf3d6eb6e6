"""Why an edit cannot go home, and what can be done."""

from __future__ import annotations

import re

from generator.code.hunks import hunks
from generator.code.ruff import run_ruff
from generator.code.traced import Origin, Traced
from generator.errors import LoomError, short
from generator.pull.edited import Edited, Hunk, Refusal
from generator.pull.sources import Woven
from generator.pull.trial import Outcome

BY_HAND = (
    "Change it there by hand, or splice a fragment of this architecture alone at a join point beside it (gen points "
    "lists them); then build with --force."
)


def reason(woven: Woven, edited: Edited, hunk: Hunk, outcome: Outcome | None) -> Refusal:
    """The reason for a hunk.

    Args:
        outcome: of its first trial, None where there was nothing to try.
    """
    origins = [origin for row in _rows(hunk) for origin in woven.origins(hunk.path, row)]
    there = f"{origins[0]}" if origins else ""
    for find in (_not_python, _no_fragment, _formatting):
        if found := find(woven, edited, hunk):
            return Refusal(hunk.path, hunk.at, *found)
    if outcome is None and (several := _several(woven, hunk)):  # and changed in another way elsewhere
        return Refusal(hunk.path, hunk.at, *several)
    if outcome is None:
        return Refusal(hunk.path, hunk.at, *_nothing_to_try(woven, hunk, origins))
    broken = outcome.error is not None and outcome.error.message.startswith("not valid Python")
    if broken and (made := _weaver_made(woven, hunk, origins)):
        return Refusal(hunk.path, hunk.at, *made)
    if outcome.error:
        said = str(outcome.error).replace("\n  ", ". ")
        return Refusal(hunk.path, hunk.at, f"the fragments would not weave: {said}", f"It came from {there}.")
    if several := _several(woven, hunk):
        return Refusal(hunk.path, hunk.at, *several)
    if made := _weaver_made(woven, hunk, origins):
        return Refusal(hunk.path, hunk.at, *made)
    return Refusal(hunk.path, hunk.at, *_elsewhere(woven, edited, hunk, outcome, there))


def _rows(hunk: Hunk) -> range:
    """The lines that it replaces, or the two that it stands between."""
    return range(hunk.start, hunk.stop) if hunk.start < hunk.stop else range(max(hunk.start - 1, 0), hunk.start + 1)


def _not_python(woven: Woven, edited: Edited, hunk: Hunk) -> tuple[str, str] | None:
    if hunk.path not in woven.package.origins:
        return None
    try:
        compile(edited.texts[hunk.path], hunk.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f" at line {line}" if line else ""
        return f"the file is not valid Python{at}: {getattr(error, 'msg', error)}", "Make it run first."
    return None


def _no_fragment(woven: Woven, edited: Edited, hunk: Hunk) -> tuple[str, str] | None:
    """What is made by a template, an architecture, or gen itself."""
    segments = woven.package.origins.get(hunk.path)
    if segments is None:
        lines = woven.lines[hunk.path]
        text = next((lines[n].strip() for n in _rows(hunk) if n < len(lines) and lines[n].strip()), "")
        found = [
            f"{path}:{number}"
            for path in woven.package.inputs
            if path.endswith(".jinja")
            for number, line in enumerate(woven.source(path), 1)
            if text and line.strip() == text
        ] or [path for path in woven.package.inputs if path.endswith(f"/{hunk.path.split('/')[-1]}.jinja")]
        return "a template makes this file", f"Change the template: {', '.join(found[:3]) or 'templates/, targets/'}."
    if any(woven.origins(hunk.path, row) for row in _rows(hunk)):
        return None
    rows = [row for row in _rows(hunk) if row < len(segments)]
    origin = next((origin for row in rows for _, origin in segments[row]), None)
    if origin is None or woven.lines[hunk.path][rows[0]].startswith("# "):
        return "gen writes these lines itself", "They follow from the fragments: leave them as they are."
    return f"this line comes from {origin}, which is no fragment", f"Change {origin} by hand."


def _formatting(woven: Woven, edited: Edited, hunk: Hunk) -> tuple[str, str] | None:
    """What ruff would write otherwise."""
    if hunk.path not in woven.package.origins:
        return None
    text = edited.texts[hunk.path]
    try:
        (formatted,) = run_ruff([Traced.copy(text, hunk.path)])
    except LoomError:
        return None
    after = formatted.split("\n")
    first, last = hunk.at - 1, hunk.at - 1 + max(len(hunk.lines), 1)
    for old, new in hunks(text.split("\n"), after):
        if old.start < last and max(old.stop, old.start + 1) > first:
            lines = " / ".join(line.strip() for line in after[new.start : new.stop])
            lines = lines or ("an empty line" if new else "nothing")
            return "gen formats with ruff, which would undo this", f"Write it as ruff does: {short(lines)}"
    return None


def _nothing_to_try(woven: Woven, hunk: Hunk, origins: list[Origin]) -> tuple[str, str]:
    head = woven.head(hunk.path)
    if hunk.stop <= head:
        remedy = "An import comes and goes with the lines that use it: pull these with it. Put all else further down."
        return "among the imports, which gen writes", remedy
    return _weaver_made(woven, hunk, origins) or (
        f"a line that {len({o.path for o in origins})} fragments share: {', '.join(map(str, origins[:4]))}",
        BY_HAND,
    )


def _weaver_made(woven: Woven, hunk: Hunk, origins: list[Origin]) -> tuple[str, str] | None:
    """What the weaver writes in a fragment's place."""
    for origin in dict.fromkeys(origins):
        line = woven.source(origin.path)[origin.line - 1]
        if "setting(" in line:
            return f"a value that is filled in at {origin}: {line.strip()}", "Change the setting in the architecture."
        if re.search(r"\blayers?\.", line):
            return f"written out from the pattern of layers at {origin}: {line.strip()}", BY_HAND
    if not any(woven.copied(hunk.path, row) for row in _rows(hunk)):
        if len({origin.path for origin in origins}) > 1:
            places = ", ".join(map(str, origins[:4]))
            return f"a line that several fragments share: {places}", BY_HAND
        if origins:
            line = woven.source(origins[0].path)[origins[0].line - 1].strip()
            return f"threaded or written by the weaver, because of {origins[0]}: {line}", BY_HAND
    return None


def _several(woven: Woven, hunk: Hunk) -> tuple[str, str] | None:
    """A source line that is woven more than once."""
    for row in _rows(hunk):
        source = woven.copied(hunk.path, row) if woven.lines[hunk.path][row].strip() else None
        if source and len(places := woven.places.get(source, [])) > 1:
            shown = ", ".join(f"{path}:{line}" for path, line in places)
            at = f"{source[0]}:{source[1] + 1}"
            return f"{at} is woven in {len(places)} places of this package", f"Change all of them alike: {shown}."
    return None


def _elsewhere(woven: Woven, edited: Edited, hunk: Hunk, outcome: Outcome, there: str) -> tuple[str, str]:
    made = outcome.package.files.get(outcome.path, "").split("\n") if outcome.package else []
    line = made[outcome.line - 1].strip() if 0 < outcome.line <= len(made) else ""
    added = [match[0] for text in hunk.lines if (match := re.match(r"(async )?(def|class) \w+", text))]
    if any(not any(text.startswith(head) for text in made) for head in added):
        return "gen leaves out a definition that nothing uses", "Pull it together with the line that uses it."
    if outcome.path and outcome.path != hunk.path:
        said = f"it would also change {outcome.path}:{outcome.line} to {short(line)!r}"
        return said, f"Make that change too. It came from {there}."
    return f"woven again, line {outcome.line} would be {short(line)!r}", f"It came from {there}. {BY_HAND}"
