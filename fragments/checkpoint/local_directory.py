"""Local directories."""

from etils import epath

from generator.language import excludes
from generator.language.roles import InputError

excludes("object_stores")


def absolute(directory: str | epath.Path) -> epath.Path:
    if "://" in str(directory):
        raise InputError(f"{directory}: is on no disk: mount the bucket, or build the package with its part cluster")
    return epath.Path(directory).expanduser().resolve()
