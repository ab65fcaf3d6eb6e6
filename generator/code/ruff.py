"""Runs ruff, the linter, on the names and imports of a text."""

from __future__ import annotations

import re

OPTIONS = ("--isolated", "--no-cache", "--line-length=120", "--target-version=py311")


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
