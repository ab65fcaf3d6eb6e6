"""Maps a file and line, as a run recorded them, to the fragment line.

A run may have been elsewhere, or long ago. A file that is in a folder with a lock is taken as it is there. One that is
not is looked for by PACKAGE/file.py in generated/. Notes say why lines may be off then.
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
    """A woven file that a run named.

    Attributes:
        path: in the package.
        notes: what makes its lines uncertain.
    """

    package: MappedPackage
    path: str
    notes: tuple[str, ...]

    def segments(self, line: int) -> Segments:
        """Returns the sources of a line, none for a number that the file does not have."""
        lines = self.package.origins[self.path]
        return lines[line - 1] if 0 < line <= len(lines) else []

    def origin(self, line: int, column: int = 0) -> Origin | None:
        """Returns the source of a character; columns count from 0."""
        before = [origin for start, origin in self.segments(line) if start <= max(column, 0)]
        return before[-1] if before else None


class Origins:
    """The woven files of packages, each looked up once.

    Attributes:
        problems: folder -> why the package there cannot be read.
    """

    def __init__(self, project: Project):
        self.project = project
        self.problems: dict[Path, LoomError] = {}
        self._fingerprints = InputDigests(project.roots)
        self._packages: dict[Path, MappedPackage | None] = {}
        self._found: dict[str, WovenFile | None] = {}

    def find(self, recorded: str) -> WovenFile | None:
        """Finds the woven file of a path as a run recorded it; None for a file of no package."""
        if recorded not in self._found:
            place = Path(os.path.abspath(recorded))
            if not os.path.isfile(place) and os.path.isfile(self.project.generated / recorded):
                place = self.project.generated / recorded  # pytest gives paths from where it ran
            there = os.path.isfile(place)
            self._found[recorded] = (self._inside(place) if there else None) or self._by_name(place, there)
        return self._found[recorded]

    def changed(self, package: MappedPackage, source: str) -> str:
        """Returns why the lines of a source of a package are uncertain, '' if they are not."""
        now = self._fingerprints.hash_source(source)
        if now == package.lock.inputs.get(source):
            return ""
        return f"{source} {'changed since it was woven' if now else 'is not in this project'}"

    def _inside(self, place: Path) -> WovenFile | None:
        for folder in place.parents:
            if os.path.isfile(folder / LOCK):
                return self._woven(folder, place.relative_to(folder).as_posix(), ())
        return None

    def _by_name(self, place: Path, there: bool) -> WovenFile | None:
        """Finds the file of the same package name and path in generated/."""
        generated, parts = self.project.generated, place.parts
        for start in range(len(parts) - 2, 0, -1):
            folder, path = generated / parts[start], "/".join(parts[start + 1 :])
            if os.path.isfile(folder / LOCK) and os.path.isfile(folder / path):
                if there and place.read_bytes() == (folder / path).read_bytes():
                    return self._woven(folder, path, ())
                why = "has no gen.map and another text" if there else "is not there"
                shown = self.project.display_path(folder / path)
                return self._woven(folder, path, (f"the file {why}, so this is of {shown}: lines may be off",))
        return None

    def _woven(self, folder: Path, path: str, notes: tuple[str, ...]) -> WovenFile | None:
        if folder not in self._packages:
            self._packages[folder] = None
            try:
                package = MappedPackage.read(folder)
                self._packages[folder] = package if package.origins else None
            except LoomError as error:
                self.problems[folder] = error
        found = self._packages[folder]
        if found is None or not found.origins.get(path):
            return None
        if found.is_edited(path):
            notes += ("the file was edited since it was woven: lines may be off",)
        return WovenFile(found, path, notes)
