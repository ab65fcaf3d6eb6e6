"""Profiler: a trace of some steps, for xprof and TensorBoard."""

import contextlib
import re

import jax
from etils import epath
from jax import Array

from generator.language import proceed, requires, splice
from generator.language.roles import InputError, local_folder, upload

requires("object_stores")


class TrainConfig:
    profile_steps: str = ""  # FIRST:LAST, such as 10:13: steps to trace into DIR/profile; "": none


def profile_window(config: TrainConfig, done: int = 0) -> range:
    """Returns the steps to trace that are not done yet. Raises InputError if there are no such steps."""
    match = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", config.profile_steps)
    first, last = map(int, match.groups()) if match else (0, 0)
    if config.profile_steps and not 0 < first <= last <= config.steps:
        raise InputError(f"--profile-steps {config.profile_steps}: must be FIRST:LAST, steps from 1 to {config.steps}")
    return range(max(first, done + 1), last + 1)


class Profiler(contextlib.ExitStack):
    """Traces the steps of a window; a run that ends meanwhile, in a `with` block, leaves what it traced until then."""

    def __init__(self, config: TrainConfig, done: int, folder: epath.Path):
        super().__init__()
        self.window = profile_window(config, done)
        self.folder = folder

    def before_step(self, step: int) -> None:
        if step in self.window[:1] and jax.process_index() == 0:
            traces = local_folder(self.folder)
            self.callback(upload, traces, self.folder)
            self.enter_context(jax.profiler.trace(traces))

    def after_step(self, step: int, metrics: dict[str, Array]) -> None:
        if step in self.window[-1:]:
            jax.block_until_ready(metrics)
            self.close()


@splice("train.settings")
def _(config):
    profile_window(config)


@splice("train.compiled")
def _(stack, directory, step, config):
    profiler = stack.enter_context(Profiler(config, step, directory / "profile"))


@splice("train.before_step")
def _(profiler, step):
    profiler.before_step(step + 1)


@splice("train.step", after="check_step")
def _(step):
    with jax.profiler.StepTraceAnnotation("train", step_num=step + 1):
        proceed()


@splice("train.after_step")
def _(profiler, step, metrics):
    profiler.after_step(step, metrics)
