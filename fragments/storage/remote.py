"""Folders of object stores, which take whole files only."""

import tempfile

from etils import epath


def absolute(directory: str) -> epath.Path:
    path = epath.Path(directory).expanduser()
    return path if "://" in str(path) else path.resolve()  # which takes gs://... for a local folder


def local_folder(folder: epath.Path) -> epath.Path:
    """A folder itself, or for one of an object store (gs://, s3://) a new one of this machine, for `upload`."""
    return epath.Path(tempfile.mkdtemp()) / folder.name if "://" in str(folder) else folder


def upload(local: epath.Path, folder: epath.Path) -> None:
    """Copies all files of a `local_folder` to the one that it is for."""
    for parent, _, names in local.walk() if local != folder else ():
        target = folder / parent.relative_to(local)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            (parent / name).copy(target / name, overwrite=True)
