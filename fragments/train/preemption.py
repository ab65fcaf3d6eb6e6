"""Preemption: the step after a signal is the last, and is saved."""

import os
import signal

import jax

from generator.language import point, proceed, splice

signals: list[int] = []  # that came during this run, in order


def receive_signals() -> None:
    """Makes the next step the last when SIGTERM or Ctrl-C comes; Ctrl-C again ends the program at once."""
    signals.clear()

    def receive(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(2, b"stopping after this step, which is saved; Ctrl-C again to stop now\n")  # print is not reentrant

    if jax.process_count() == 1:  # several processes agree on the last step through jax.distributed
        signal.signal(signal.SIGTERM, receive)
        signal.signal(signal.SIGINT, receive)


@splice("train.compiled")
def _():
    receive_signals()


@splice("evaluate_held_out.sums")
def _(compiled, data, held_out, state, sums):
    sums = [compiled(state.model, data.to_devices(batch)) for batch in held_out if not signals]


@splice("evaluate_held_out.mean")
def _(sums, held_out):
    if len(sums) == len(held_out):  # no signal came
        proceed()


@splice("train.is_last")
def _(step, config, is_last, checkpoints):
    stopping = bool(signals) or checkpoints.manager.reached_preemption(step)
    is_last = stopping or step == config.steps


@splice("train.evaluation_due")
def _(step, config, held_out, is_last, evaluation_due, stopping):
    evaluation_due = held_out and not stopping and (is_last or step % config.eval_every == 0)


@splice("train.end", after="goodput")
def _(step, directory, config):
    if step < config.steps:
        print(f"stopped by a signal after step {step}, which is saved: --checkpoint-dir {directory} continues")
        with point("train.preempted"):
            raise SystemExit(75)  # EX_TEMPFAIL in sysexits.h: the same command continues
