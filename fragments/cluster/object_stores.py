"""Folders of object stores, which take whole files only."""

import atexit
import math
import shutil
import tempfile
import time

import jax
from etils import epath

from generator.language import point, proceed, splice
from generator.language.roles import may_fail, save_hf


def absolute(directory: str | epath.Path) -> epath.Path:
    path = epath.Path(directory).expanduser()
    return path if "://" in str(path) else path.resolve()  # resolve() takes gs://... for a local folder


def local_folder(folder: epath.Path) -> epath.Path:
    """Returns the folder, or for one of an object store (gs://, s3://) a new local one, for `upload`."""
    if "://" not in str(folder):
        return folder
    local = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, local, ignore_errors=True)
    return epath.Path(local) / folder.name


def upload(local: epath.Path, folder: epath.Path) -> None:
    """Copies all files of a `local_folder` to the folder it was made for."""
    for parent, _, names in local.walk() if local != folder else ():
        target = folder / parent.relative_to(local)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            (parent / name).copy(target / name, overwrite=True)


@splice("Checkpoints.writable")
def _(self):
    if "://" not in str(self.directory):
        proceed()


@splice("atomic_directory.writable")
def _(target):
    if "://" not in str(target):
        proceed()


@splice("Monitor.folder")
def _(self):
    self.shared, self.folder = self.folder, local_folder(self.folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    names = ["metrics.jsonl"]  # of files that a resumed run goes on with
    point("Monitor.copied", names)
    for name in names:
        if self.folder != self.shared and (self.shared / name).exists():
            (self.shared / name).copy(self.folder / name)
    self.uploaded = -math.inf  # when the last upload ended
    self.upload_seconds = 0.0  # that it took


@splice("Monitor.restart_clock", after="tensorboard")
def _(self):
    if (start := time.perf_counter()) - self.uploaded > 50 * self.upload_seconds:  # at most 2 % of the time
        with may_fail("upload", self.failed):
            point("Monitor.upload")
            upload(self.folder, self.shared)
        self.uploaded = time.perf_counter()
        self.upload_seconds = self.uploaded - start


@splice("Monitor.close", after="tensorboard loss_curve report")
def _(self):
    with may_fail("upload", self.failed):
        point("Monitor.upload_all")
        upload(self.folder, self.shared)


@splice("profile.start", optional=True)
def _(traces, folder):
    local = local_folder(folder)
    traces.callback(upload, local, folder)
    traces.enter_context(jax.profiler.trace(local))


@splice("export_hf.save", optional=True)
def _(config, model, half, dtype, tokenizer):
    from generator.language.roles import local_folder, upload

    local = local_folder(half)
    save_hf(config, model, local, dtype, tokenizer=tokenizer)
    upload(local, half)
