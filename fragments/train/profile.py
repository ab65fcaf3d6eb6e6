"""Profiler: a trace of some steps, for xprof and TensorBoard."""

import contextlib
import re

import jax
from etils import epath

from generator.language import point, proceed, splice
from generator.language.roles import InputError, TrainState


class TrainConfig:
    profile_steps: str = ""  # FIRST:LAST, such as 10:13: steps to trace into DIR/profile; "": none


def profile_window(config: TrainConfig) -> range:
    """Returns the steps of --profile-steps; raises InputError if there are no such steps."""
    match = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", config.profile_steps)
    first, last = map(int, match.groups()) if match else (0, 0)
    if config.profile_steps and not 0 < first <= last <= config.steps:
        raise InputError(f"--profile-steps {config.profile_steps}: must be FIRST:LAST, steps from 1 to {config.steps}")
    return range(first, last + 1)


def profile(step: int, window: range, traces: contextlib.ExitStack, folder: epath.Path, state: TrainState) -> None:
    """Starts a trace before the first step of a window, in process 0, and ends it when the last step is done."""
    if step == window.start and jax.process_index() == 0:
        with point("profile.start", traces, folder):
            traces.enter_context(jax.profiler.trace(folder))
    if step == window.stop:
        jax.block_until_ready(state)
        traces.close()


@splice("train.settings")
def _(config):
    window = profile_window(config)


@splice("train.compiled")
def _(stack):
    traces = stack.enter_context(contextlib.ExitStack())  # saves the trace of a run that ends in the window


@splice("train.before_step", after="goodput")
def _(step, window, traces, directory, state):
    profile(step + 1, window, traces, directory / "profile", state)


@splice("train.step", after="check_step")
def _(step):
    with jax.profiler.StepTraceAnnotation("train", step_num=step + 1):
        proceed()
