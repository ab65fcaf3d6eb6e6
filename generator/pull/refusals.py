"""Says why an edit cannot go home, and what to do instead."""

from __future__ import annotations

import re

from generator.code.black import run_black
from generator.code.hunks import hunks
from generator.code.traced import Origin, Traced
from generator.errors import LoomError, short
from generator.pull.edits import Hunk, PackageEdits, Refusal
from generator.pull.join_points import join_points_near
from generator.pull.sources import PackageSources
from generator.pull.trials import Trial

OF_GEN = "is part of gen and not of this project"
_Reason = tuple[str, str] | None  # the reason and the remedy


def explain_refusal(woven: PackageSources, edits: PackageEdits, hunk: Hunk, failed: Trial | None) -> Refusal:
    """Returns the refusal of an edit.

    Args:
        failed: its first trial; None if it had no candidate.
    """
    if fault := _blame_generator(woven, hunk) or _blame_text(edits.texts[hunk.path], hunk):
        return Refusal(hunk.path, hunk.at, *fault)
    if failed is None and hunk.stop <= woven.imports_end(hunk.path):
        remedy = "An import comes and goes with the lines that use it: pull these with it. Put all else further down."
        return Refusal(hunk.path, hunk.at, "among the imports, which gen writes", remedy)
    origins = list(dict.fromkeys(origin for row in hunk.rows for origin in woven.origins(hunk.path, row)))
    error = failed.error if failed else None
    is_invalid = error is not None and error.message.startswith("not valid Python")  # the source line is another one
    known = None if error and not is_invalid else _blame_copies(woven, hunk) or _blame_weaver(woven, hunk, origins)
    reason, remedy = known or _describe_trial(hunk, failed, origins)
    if points := join_points_near(woven, hunk):
        folder = points[0].source.origin(points[0].statement).path.split("/")[1]
        remedy += (
            f" The nearest join point is {points[0].name}, which shows {points[0].shows}; for one architecture alone: "
            f"gen pull {woven.package.name} --as fragments/{folder}/NAME.py --line {hunk.path}:{hunk.at}"
        )
    return Refusal(hunk.path, hunk.at, reason, remedy)


def _blame_generator(woven: PackageSources, hunk: Hunk) -> _Reason:
    """Names the template, the TOML file or gen itself, if that makes the lines and no fragment does."""
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
    return f"this line comes from {origin}, which is not a fragment", f"Change {origin} by hand."


def _blame_text(text: str, hunk: Hunk) -> _Reason:
    """Names the syntax error of an edited file, or the lines that black formats differently."""
    try:
        compile(text, hunk.path, "exec", dont_inherit=True)
        (formatted,) = run_black([Traced.copy(text, hunk.path)])
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
            return "gen formats with black, which would undo this", f"Write it as black does: {short(lines)}"
    return None


def _blame_copies(woven: PackageSources, hunk: Hunk) -> _Reason:
    """Names the other copies of a source line that is woven more than once."""
    for row in hunk.rows:
        source = woven.copied_from(hunk.path, row) if woven.lines[hunk.path][row].strip() else None
        if source and len(copies := woven.copies(source)) > 1:
            at = f"{source[0]}:{source[1] + 1}"
            return f"{at} is woven in {len(copies)} places of this package", f"Change all alike: {', '.join(copies)}."
    return None


def _blame_weaver(woven: PackageSources, hunk: Hunk, origins: list[Origin]) -> _Reason:
    """Names the source lines from which the weaver composes a line."""
    if not origins or any(woven.copied_from(hunk.path, row) for row in hunk.rows):
        return None
    lines = "; ".join(f"{origin}: {woven.text_at(origin).strip()}" for origin in origins[:4])
    remedy = "Change that by hand, or the setting or the provider that it reads; then build with --force."
    return f"the weaver makes this line of {lines}", remedy


def _describe_trial(hunk: Hunk, failed: Trial | None, origins: list[Origin]) -> tuple[str, str]:
    """Returns a reason and a remedy from the first trial."""
    remedy = "Change the fragment by hand, then build with --force."
    if origins:
        remedy = f"It came from {origins[0]}. {remedy}"
    if failed is None:
        return "no change of one fragment makes it", remedy
    if failed.error:
        where = f"{failed.error.where}: " if failed.error.where else ""
        if failed.error.message.startswith("not valid Python"):  # of a text that only this trial has
            source = (failed.error.where or "").rpartition(":")[0]
            return f"{source} would not be valid Python without these lines", remedy
        if failed.error.message == OF_GEN:
            return f"{where}{OF_GEN}", failed.error.remedy or ""
        return f"the fragments would not weave: {where}{failed.error.message}", f"{failed.error.remedy or ''} {remedy}"
    heads = [match[0] for text in hunk.lines if (match := re.match(r"(async )?(def|class) \w+", text))]
    if any(not any(text.startswith(head) for text in failed.lines) for head in heads):
        return "gen leaves out a definition that nothing uses", "Pull it together with the line that uses it."
    if failed.path != hunk.path:
        at = f"{failed.path}:{failed.line}"
        return f"it would also change {at} to {failed.unexpected_line!r}", f"Make that change too. {remedy}"
    return f"woven again, line {failed.line} would be {failed.unexpected_line!r}", remedy
