"""Why an edit cannot go home, and what can be done."""

from __future__ import annotations

import re

from generator.code.hunks import hunks
from generator.code.ruff import run_ruff
from generator.code.traced import Origin, Traced
from generator.errors import LoomError, short
from generator.pull.edited import Edited, Hunk, Refusal
from generator.pull.joins import joins_around
from generator.pull.sources import PackageSources
from generator.pull.trial import Outcome

_Why = tuple[str, str] | None  # the reason and the remedy


def refuse(woven: PackageSources, edited: Edited, hunk: Hunk, failed: Outcome | None) -> Refusal:
    """Says why an edit stays.

    Args:
        failed: its first trial, None where there was nothing to try.
    """
    text = edited.texts[hunk.path]
    if found := _find_maker(woven, hunk) or _find_fault(text, hunk):
        return Refusal(hunk.path, hunk.at, *found)
    if failed is None and hunk.stop <= woven.head(hunk.path):
        remedy = "An import comes and goes with the lines that use it: pull these with it. Put all else further down."
        return Refusal(hunk.path, hunk.at, "among the imports, which gen writes", remedy)
    origins = list(dict.fromkeys(origin for row in hunk.rows for origin in woven.origins(hunk.path, row)))
    error = failed.error if failed else None
    broken = error is not None and error.message.startswith("not valid Python")  # as the line there is another
    found = None if error and not broken else _find_places(woven, hunk) or _find_sources(woven, hunk, origins)
    reason, remedy = found or _explain(hunk, failed, origins)
    if joins := joins_around(woven, hunk):
        folder = joins[0].path.split("/")[1]
        remedy += (
            f" The nearest join point is {joins[0].name}, which shows {joins[0].shows}; for one architecture alone: "
            f"gen pull {woven.package.name} --as fragments/{folder}/NAME.py --line {hunk.path}:{hunk.at}"
        )
    return Refusal(hunk.path, hunk.at, reason, remedy)


def _find_maker(woven: PackageSources, hunk: Hunk) -> _Why:
    """Finds the template, the TOML file or the part of gen that makes lines, where no fragment does."""
    segments = woven.package.origins.get(hunk.path)
    if segments is None:
        name = f"/{hunk.path.split('/')[-1]}.jinja"
        templates = ", ".join(path for path in woven.package.inputs if path.endswith(name))
        return "a template makes this file", f"Change the template: {templates or 'templates/, targets/'}."
    if any(woven.origins(hunk.path, row) for row in hunk.rows):
        return None
    rows = [row for row in hunk.rows if row < len(segments)]
    origin = next((origin for row in rows for _, origin in segments[row]), None)
    if origin is None or woven.lines[hunk.path][rows[0]].startswith("# "):
        return "gen writes these lines itself", "They follow from the fragments: leave them as they are."
    return f"this line comes from {origin}, which is no fragment", f"Change {origin} by hand."


def _find_fault(text: str, hunk: Hunk) -> _Why:
    """Finds text that is no Python, or that ruff would write otherwise."""
    try:
        compile(text, hunk.path, "exec", dont_inherit=True)
        (formatted,) = run_ruff([Traced.copy(text, hunk.path)])
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f" at line {line}" if line else ""
        return f"the file is not valid Python{at}: {getattr(error, 'msg', error)}", "Make it run first."
    except LoomError:
        return None
    after, first, last = formatted.split("\n"), hunk.at - 1, hunk.at - 1 + max(len(hunk.lines), 1)
    for old, new in hunks(text.split("\n"), after):
        if old.start < last and max(old.stop, old.start + 1) > first:
            lines = " / ".join(line.strip() for line in after[new.start : new.stop])
            lines = lines or ("an empty line" if new else "nothing")
            return "gen formats with ruff, which would undo this", f"Write it as ruff does: {short(lines)}"
    return None


def _find_places(woven: PackageSources, hunk: Hunk) -> _Why:
    """Finds the other places of a source line that is woven more than once."""
    for row in hunk.rows:
        source = woven.copied(hunk.path, row) if woven.lines[hunk.path][row].strip() else None
        if source and len(places := woven.places(source)) > 1:
            at = f"{source[0]}:{source[1] + 1}"
            return f"{at} is woven in {len(places)} places of this package", f"Change all alike: {', '.join(places)}."
    return None


def _find_sources(woven: PackageSources, hunk: Hunk, origins: list[Origin]) -> _Why:
    """Finds the sources of a line that the weaver writes in the place of a fragment's."""
    if not origins or any(woven.copied(hunk.path, row) for row in hunk.rows):
        return None
    made = "; ".join(f"{origin}: {woven.text_at(origin).strip()}" for origin in origins[:4])
    remedy = "Change that by hand, or the setting or the provider that it reads; then build with --force."
    return f"the weaver makes this line of {made}", remedy


def _explain(hunk: Hunk, failed: Outcome | None, origins: list[Origin]) -> tuple[str, str]:
    """Says what the first trial made."""
    remedy = "Change the fragment by hand, then build with --force."
    if origins:
        remedy = f"It came from {origins[0]}. {remedy}"
    if failed is None:
        return "no change of one fragment makes it", remedy
    if failed.error:
        where = f"{failed.error.where}: " if failed.error.where else ""
        return f"the fragments would not weave: {where}{failed.error.message}", f"{failed.error.remedy or ''} {remedy}"
    added = [match[0] for text in hunk.lines if (match := re.match(r"(async )?(def|class) \w+", text))]
    if any(not any(text.startswith(head) for text in failed.lines) for head in added):
        return "gen leaves out a definition that nothing uses", "Pull it together with the line that uses it."
    if failed.path != hunk.path:
        return f"it would also change {failed.path}:{failed.line} to {failed.made!r}", f"Make that change too. {remedy}"
    return f"woven again, line {failed.line} would be {failed.made!r}", remedy
