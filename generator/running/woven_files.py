"""Maps a file and line that a run recorded to the fragment line.

A run may have been on another machine, or long ago. A file in a folder with a lock is used as it is. Any other file is
looked up by PACKAGE/file.py in generated/, and a note says why lines may be off.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from generator.code.traced import Origin
from generator.disk.built import MappedPackage, Segments
from generator.disk.lock import LOCK, InputDigests
from generator.disk.project import Project
from generator.errors import LoomError


class WovenFile(NamedTuple):
    """A woven file that a run recorded.

    Attributes:
        path: in the package.
        notes: reasons why its lines are uncertain.
    """

    package: MappedPackage
    path: str
    notes: tuple[str, ...]

    def segments(self, line: int) -> Segments:
        """Returns the segments of a line; none for a number beyond the file."""
        lines = self.package.origins[self.path]
        return lines[line - 1] if 0 < line <= len(lines) else []

    def origin(self, line: int, column: int = 0) -> Origin | None:
        """Returns the source of a character; None if it has none. Columns count from 0."""
        before = [origin for start, origin in self.segments(line) if start <= max(column, 0)]
        return before[-1] if before else None


class WovenFiles:
    """Looks up the woven files of packages, each once.

    Attributes:
        problems: folder -> error of reading the package there.
    """

    def __init__(self, project: Project):
        self.project = project
        self.problems: dict[Path, LoomError] = {}
        self._fingerprints = InputDigests(project.roots)
        self._packages: dict[Path, MappedPackage | None] = {}
        self._files: dict[str, WovenFile | None] = {}

    def find(self, recorded: str) -> WovenFile | None:
        """Returns the woven file of a recorded path; None for a file of no package."""
        if recorded not in self._files:
            place = Path(os.path.abspath(recorded))
            if not os.path.isfile(place) and os.path.isfile(self.project.generated / recorded):
                place = self.project.generated / recorded  # paths of pytest are relative to where it ran
            exists = os.path.isfile(place)
            woven = self._find_in_package(place) if exists else None
            self._files[recorded] = woven or self._find_by_name(place, exists)
        return self._files[recorded]

    def drift(self, package: MappedPackage, source: str) -> str:
        """Returns how a source differs from the one that a package was woven from, '' if it does not."""
        current = self._fingerprints.hash_source(source)
        if current == package.lock.inputs.get(source):
            return ""
        return f"{source} {'changed since it was woven' if current else 'is not in this project'}"

    def _find_in_package(self, place: Path) -> WovenFile | None:
        for folder in place.parents:
            if os.path.isfile(folder / LOCK):
                return self._read(folder, place.relative_to(folder).as_posix(), ())
        return None

    def _find_by_name(self, place: Path, exists: bool) -> WovenFile | None:
        """Finds the file of the same package name and path in generated/."""
        generated, parts = self.project.generated, place.parts
        for start in range(len(parts) - 2, 0, -1):
            folder, path = generated / parts[start], "/".join(parts[start + 1 :])
            if os.path.isfile(folder / LOCK) and os.path.isfile(folder / path):
                if exists and place.read_bytes() == (folder / path).read_bytes():
                    return self._read(folder, path, ())
                why = "has no gen.map and another text" if exists else "is not there"
                shown = self.project.display_path(folder / path)
                return self._read(folder, path, (f"the file {why}, so this is of {shown}: lines may be off",))
        return None

    def _read(self, folder: Path, path: str, notes: tuple[str, ...]) -> WovenFile | None:
        """Returns a file of the package in a folder; None if its lock or map cannot be read, or lacks the file."""
        if folder not in self._packages:
            self._packages[folder] = None
            try:
                package = MappedPackage.read(folder)
                self._packages[folder] = package if package.origins else None
            except LoomError as error:
                self.problems[folder] = error
        mapped = self._packages[folder]
        if mapped is None or not mapped.origins.get(path):
            return None
        if mapped.is_edited(path):
            notes += ("the file was edited since it was woven: lines may be off",)
        return WovenFile(mapped, path, notes)
