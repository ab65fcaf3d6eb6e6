"""The comments at the top of a Python file, which name its fragments: gen writes them, and they are no one's edit."""

from __future__ import annotations

from dataclasses import replace

from generator.package.package import Package


def split(text: str) -> tuple[list[str], list[str]]:
    """The comment lines at the top, and the others."""
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:end], lines[end:]


def with_head(text: str, other: str) -> str:
    """A text with the comments at the top of another one."""
    return "\n".join([*split(other)[0], *split(text)[1]])


def with_heads(package: Package, files: dict[str, str]) -> Package:
    """A package whose Python files have the comments that other files have."""
    shared = package.origins.keys() & files.keys()
    same = {path: with_head(package.files[path], files[path]) for path in shared}
    return replace(package, files={**package.files, **same})
