"""Runs ruff, the formatter and linter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from generator.code.traced import Traced
from generator.errors import LoomError

OPTIONS = ("--isolated", "--no-cache", "--line-length=120", "--target-version=py311")


def run_ruff(sources: Sequence[Traced]) -> list[str]:
    """Returns each text as ruff formats it; it runs once for all of them, in a temporary folder."""
    if not sources:
        return []
    import subprocess  # late: with tempfile it takes 20 ms, and most commands format nothing
    import tempfile

    from ruff import find_ruff_bin

    try:
        with tempfile.TemporaryDirectory(prefix="gen-") as folder:
            paths = [Path(folder, f"{number}.py") for number in range(len(sources))]
            for path, source in zip(paths, sources, strict=True):
                path.write_bytes(source.text.encode())
            command = [find_ruff_bin(), "format", *OPTIONS, *(path.name for path in paths)]
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
            if done.returncode != 0:
                raise _format_error(sources, done.stderr.decode(errors="replace").strip())
            return [path.read_bytes().decode() for path in paths]
    except OSError as error:
        remedy = "Make room for temporary files, or set TMPDIR; install ruff again if it is ruff that is missing."
        raise LoomError(f"ruff cannot format: {error}", tempfile.tempdir, remedy) from error


def _format_error(sources: Sequence[Traced], report: str) -> LoomError:
    """Returns the error for a text that ruff cannot parse, with the line of its source."""
    place = re.search(r"(\d+)\.py:(\d+):(\d+): (.*)", report)
    if place is None:
        return LoomError(f"ruff cannot format: {report or 'it gives no reason'}", remedy="Install ruff again.")
    text, row, column = sources[int(place[1])], int(place[2]) - 1, int(place[3]) - 1
    lines = text.text.rstrip().split("\n")
    row = min(row, len(lines) - 1)  # ruff reports an unexpected end after the last line
    offset = sum(len(line) + 1 for line in lines[:row]) + min(column, len(lines[row]))
    message = f"ruff cannot parse {lines[row].strip()!r} ({place[4]})"
    return LoomError(message, str(text.origin_at(offset)), "Fix this line, or what is woven into it.")


def lint_names(text: str) -> dict[str, set[str]]:
    """Returns the `undefined` names of a text and its `unused` imports; none for a text that is not Python."""
    import json

    names: dict[str, set[str]] = {"undefined": set(), "unused": set()}
    if (report := _lint(text, "--select=F401,F821", "--output-format=json")).startswith("["):
        for entry in json.loads(report):
            kind = {"F821": "undefined", "F401": "unused"}.get(entry["code"])
            if kind and (name := re.search(r"`([^`]+)`", entry["message"])):
                names[kind].add(name[1])
    return names


def tidy_imports(text: str, unused: bool) -> str:
    """Returns a text with its imports sorted, and on demand without unused ones."""
    return _lint(text, f"--select={'F401,' * unused}I", "--fix", "--quiet") or text


def _lint(text: str, *options: str) -> str:
    import subprocess

    from ruff import find_ruff_bin

    own = '--config=lint.isort.known-first-party=["generator","fragments"]'
    command = [find_ruff_bin(), "check", *OPTIONS, own, *options, "--stdin-filename=fragment.py", "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=False).stdout.decode()
