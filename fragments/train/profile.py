"""Profiler: a trace of some steps, for xprof and TensorBoard."""

import re

from generator.language import splice
from generator.language.roles import Config, InputError


class Config:
    profile_steps: str = ""  # FIRST:LAST, the steps of which a trace is written to DIR/profile, such as 10:13; "": none


def profile_window(config: Config, done: int = 0) -> range:
    """The steps of which a trace is written, but for those that are done. InputError: there are no such steps."""
    found = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", config.profile_steps)
    first, last = map(int, found.groups()) if found else (0, 0)
    if config.profile_steps and not 0 < first <= last <= config.steps:
        raise InputError(f"--profile-steps {config.profile_steps}: must be FIRST:LAST, steps from 1 to {config.steps}")
    return range(max(first, done + 1), last + 1)


@splice("train.settings")
def _(config):
    profile_window(config)
