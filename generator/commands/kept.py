"""The packages of a project with their text, whether it is on disk or not."""

from __future__ import annotations

from generator.commands.build import Asked
from generator.commands.woven import woven_now
from generator.disk.built import MappedPackage, WovenPackage
from generator.disk.lock import Fingerprints
from generator.disk.project import Project
from generator.errors import LoomError


def kept_packages(project: Project) -> list[MappedPackage]:
    """The packages that are kept and have been built; those that are not committed, and not there, are woven."""
    prints = Fingerprints(project.roots)
    kept = [Asked(project, combination, prints, project.generated) for combination in project.packages()]
    locks = [asked for asked in kept if asked.only_lock]
    woven = dict(zip([asked.folder for asked in locks], woven_now(locks), strict=True))
    result: list[MappedPackage] = []
    for asked in kept:
        if asked.folder in woven:
            files = woven[asked.folder]
            if isinstance(files, LoomError):
                raise files
            result.append(WovenPackage.of(asked.combination, files))
        elif asked.folder.is_dir():
            result.append(MappedPackage.read(asked.folder))
    return result
