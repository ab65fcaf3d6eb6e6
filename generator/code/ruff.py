"""Running ruff, the formatter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from generator.code.traced import Traced
from generator.errors import LoomError

OPTIONS = ("--isolated", "--no-cache", "--line-length=120", "--target-version=py311")


def run_ruff(sources: Sequence[Traced]) -> list[str]:
    """What ruff makes of each text. It runs once for all, and reads files: they are in a folder for a moment."""
    if not sources:
        return []
    import subprocess  # takes 20 ms to import with tempfile, which a command that formats nothing should not wait for
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
                raise _refused(sources, done.stderr.decode(errors="replace").strip())
            return [path.read_bytes().decode() for path in paths]
    except OSError as error:
        remedy = "Make room for temporary files, or set TMPDIR; install ruff again if it is ruff that is missing."
        raise LoomError(f"ruff cannot format: {error}", tempfile.tempdir, remedy) from error


def _refused(sources: Sequence[Traced], said: str) -> LoomError:
    found = re.search(r"(\d+)\.py:(\d+):(\d+): (.*)", said)
    if found is None:
        return LoomError(f"ruff cannot format: {said or 'it says no reason'}", remedy="Install ruff again.")
    text, row, column = sources[int(found[1])], int(found[2]) - 1, int(found[3]) - 1
    lines = text.text.rstrip().split("\n")
    row = min(row, len(lines) - 1)  # an end that comes too early is found after the last line
    offset = sum(len(line) + 1 for line in lines[:row]) + min(column, len(lines[row]))
    message = f"ruff cannot parse {lines[row].strip()!r} ({found[4]})"
    return LoomError(message, str(text.origin_at(offset)), "Fix this line, or what is woven into it.")


def names_at_fault(text: str) -> dict[str, set[str]]:
    """The names that a text reads and nothing in it gives, as `undefined`, and those that it imports for nothing.

    Both are empty for a text that is no Python.
    """
    import json

    found: dict[str, set[str]] = {"undefined": set(), "unused": set()}
    if (said := _lint(text, "--select=F401,F821", "--output-format=json")).startswith("["):
        for entry in json.loads(said):
            kind = {"F821": "undefined", "F401": "unused"}.get(entry["code"])
            if kind and (name := re.search(r"`([^`]+)`", entry["message"])):
                found[kind].add(name[1])
    return found


def tidy_imports(text: str, unused: bool) -> str:
    """A text with its imports sorted, and without those that it does not use."""
    return _lint(text, f"--select={'F401,' * unused}I", "--fix", "--quiet") or text


def _lint(text: str, *options: str) -> str:
    import subprocess

    from ruff import find_ruff_bin

    own = '--config=lint.isort.known-first-party=["generator","fragments"]'
    command = [find_ruff_bin(), "check", *OPTIONS, own, *options, "--stdin-filename=fragment.py", "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=False).stdout.decode()
