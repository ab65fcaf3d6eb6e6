"""Profiler: a trace of some steps, for xprof and TensorBoard."""

import contextlib
import re
from collections.abc import Iterator

import jax
from etils import epath

from generator.language import splice
from generator.language.roles import Config, InputError, local_folder, upload


class Config:
    profile_steps: str = ""  # FIRST:LAST, the steps of which a trace is written to DIR/profile, such as 10:13; "": none


def profile_window(config: Config, done: int = 0) -> range:
    """The steps of which a trace is written, after those that are done. InputError: there are no such steps."""
    if not config.profile_steps:
        return range(0)
    found = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", config.profile_steps)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not 0 < first <= last <= config.steps:
        wanted = f"FIRST:LAST, two steps from 1 to {config.steps}, such as 1:{config.steps}"
        raise InputError(f"--profile-steps {config.profile_steps}: must be {wanted}")
    return range(max(first, done + 1), last + 1)


@splice("train.settings")
def _(config):
    profile_window(config)


@contextlib.contextmanager
def trace(directory: epath.Path) -> Iterator[None]:
    """Writes what JAX and the devices of this process do to the folder `profile` of a run."""
    local = local_folder(directory / "profile")
    with jax.profiler.trace(local):
        yield
    upload(local, directory / "profile")
