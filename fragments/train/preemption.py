"""Preemption: the step after a signal is the last, and is saved."""

import os
import signal
from typing import NoReturn

import jax

from generator.language import proceed, splice
from generator.language.roles import ExitCode, Stop

signals: list[int] = []  # that this process received, in order


def receive_signals() -> None:
    """Collects signals from now on: the next step is the last. A second Ctrl-C ends the program at once."""
    signals.clear()

    def receive(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # unlike print, it may interrupt itself
        os.write(2, b"stopping after this step, which is saved; Ctrl-C again to stop now\n")

    if jax.process_count() == 1:  # several processes agree on the last step through jax.distributed
        signal.signal(signal.SIGTERM, receive)
        signal.signal(signal.SIGINT, receive)


def stop_before_a_step() -> None:
    """Raises Stop if a signal came, as there is nothing to save."""
    if signals:
        name = signal.Signals(signals[0]).name
        raise Stop(f"stopped by {name} before a step: the same command continues", ExitCode.PREEMPTED)


def end_preempted(step: int) -> NoReturn:
    """Ends the program with a code that says that the same command goes on after this step."""
    reason = signal.Signals(signals[0]).name if signals else "preemption"
    print(f"stopped by {reason} after step {step}, which is saved: the same command continues")
    raise SystemExit(ExitCode.PREEMPTED)


@splice("train.ready")
def _():
    receive_signals()
    stopping = False


@splice("train.compile")
def _():
    stop_before_a_step()
    proceed()
    stop_before_a_step()


@splice("evaluate_held_out.sums")
def _(compiled, data, held_out, state, sums):
    sums = [compiled(state.model, data.to_devices(batch)) for batch in held_out if not signals]


@splice("evaluate_held_out.mean")
def _(sums, held_out):
    if len(sums) == len(held_out):  # no signal came
        proceed()


@splice("record_tasks.due")
def _(is_due):
    proceed()
    is_due = is_due and not signals


@splice("train.is_last")
def _(step, config, is_last, checkpoints):
    stopping = bool(signals) or checkpoints.manager.reached_preemption(step)
    is_last = stopping or step == config.steps


@splice("train.evaluation_due")
def _(step, config, held_out, is_last, evaluation_due, stopping):
    evaluation_due = held_out and not stopping and (is_last or step % config.eval_every == 0)


@splice("train.end", after="goodput")
def _(step, stopping):
    if stopping:
        end_preempted(step)
