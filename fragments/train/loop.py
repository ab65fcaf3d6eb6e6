"""The training loop: evaluates, saves, resumes, stops on a signal."""

import contextlib
import dataclasses
import signal
import statistics
import tempfile
import time

import jax
from etils import epath

from generator.language import point
from generator.language.roles import (
    Batches,
    Checkpoints,
    Decoder,
    ExitCode,
    Goodput,
    InputError,
    Monitor,
    Stop,
    absolute,
    abstract,
    abstract_batch,
    changes,
    check_config,
    compile_step,
    create_state,
    eval_step,
    fingerprint,
    held_out_batches,
    local_folder,
    locked,
    make_mesh,
    new_state,
    profile_window,
    require_equal,
    start_watchdog,
    together,
    upload,
)


class Config:
    eval_every: int = 100  # steps between evaluations on held-out data; the last step has one as well
    eval_batches: int = 8  # batches in an evaluation, the same ones each time
    eval_first: bool = False  # whether to evaluate before the first step too, as is done with imported weights
    checkpoint_every: int = 100  # steps between checkpoints; the last step has one as well


def train(config: Config) -> None:
    """Trains up to `config.steps`, from the newest checkpoint where the directory holds one."""
    goodput = Goodput()
    require_equal("settings", config)
    check_config(config)
    point("train.settings", config)
    if not config.checkpoint_dir and jax.process_count() > 1:
        raise InputError("--checkpoint-dir is missing: several processes need one that all of them see")
    with point("train.mesh", config):
        mesh = make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor)
    batches = abstract_batch(config, mesh)
    signals = []  # received: the next step is the last; a second Ctrl-C ends the program at once

    def receive(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    if jax.process_count() == 1:  # several agree on a step to stop at through jax.distributed
        signal.signal(signal.SIGTERM, receive)
        signal.signal(signal.SIGINT, receive)
    data = together(lambda: Batches(config, batches["tokens"].sharding))
    require_equal("data", [fingerprint(config.data), fingerprint(config.eval_data or config.data)])
    held_out, to_devices = together(lambda: held_out_batches(config, data.rows)), data.to_devices
    directory = absolute(config.checkpoint_dir or time.strftime("runs/%Y%m%d-%H%M%S"))
    with locked(directory) as check_lock, jax.set_mesh(mesh), contextlib.ExitStack() as tracing:
        checkpoints = Checkpoints(str(directory), config, check_lock)
        target = abstract(lambda: new_state(config), mesh)
        found = checkpoints.restore(target.model, dataclasses.replace(target, model=None), data)
        if found is None:
            print(f"new run in {directory}")
            step, state = 0, create_state(config, mesh)
        else:
            step, saved, model, training = found
            print(f"continues after step {step} in {directory}; settings changed: {changes(saved, config) or 'none'}")
            state = dataclasses.replace(training, model=model) if training else create_state(config, mesh, model)
        point("train.restored", state)
        if step >= config.steps:
            print(f"all {config.steps} steps are done: give more --steps to train on")
            return
        goodput.spent("start-up")
        if not signals:
            compiled_step = compile_step(state, batches)
        if signals:
            name = signal.Signals(signals[0]).name
            raise Stop(f"stopped by {name} before a step: the same command continues", ExitCode.PREEMPTED)
        compiled_eval_step = jax.jit(eval_step)
        # process 0 speaks for all
        shown = directory if jax.process_index() == 0 else epath.Path(tempfile.mkdtemp())
        monitor = Monitor(shown, config, step, check_lock)
        watchdog = start_watchdog(directory)
        window = profile_window(config, step)
        pending, stopping = None, False  # pending: the last step, which the device is still working on
        goodput.spent("compiling")

        def evaluate(model: Decoder) -> None:
            sums = [compiled_eval_step(model, to_devices(batch)) for batch in held_out if not signals]
            if len(sums) < len(held_out):
                return
            total, targets = (sum(float(x[name]) for x in sums) for name in ("cross_entropy", "targets"))
            monitor.record(step, {"eval/loss": total / targets})
            print(f"step {step}: loss on held-out data {total / targets:.4f}", flush=True)
            goodput.spent("evaluation")

        try:
            if step == 0 and held_out and (config.eval_first or found):
                evaluate(state.model)
            while step < config.steps and not stopping:
                limit = max(config.hang_seconds, config.hang_factor * statistics.median(monitor.seconds or [0]))
                watchdog.put(config.hang_seconds and limit)
                goodput.spent("steps")
                batch = to_devices(next(data))
                goodput.spent("data" if not pending or pending[1]["train/loss"].is_ready() else "steps")  # idle or busy
                if step + 1 in window[:1] and jax.process_index() == 0:
                    traces = local_folder(directory / "profile")
                    tracing.callback(upload, traces, directory / "profile")
                    tracing.enter_context(jax.profiler.trace(traces))
                with jax.profiler.StepTraceAnnotation("train", step_num=step + 1):
                    with point("train.step", compiled_step, state, batch, step, config):
                        state, metrics = compiled_step(state, batch)
                step += 1
                if step in window[-1:]:
                    jax.block_until_ready(metrics)
                    tracing.close()
                    goodput.spent("other")
                if pending:
                    monitor.step(*pending)
                pending = step, metrics
                stopping = bool(signals) or checkpoints.manager.reached_preemption(step)
                evaluates = held_out and not stopping and (step == config.steps or step % config.eval_every == 0)
                saves = step == config.steps or step % config.checkpoint_every == 0 or stopping
                if not (evaluates or saves):
                    continue
                monitor.step(*pending)
                goodput.spent("steps")
                pending = None
                # steps that are skipped take no old checkpoint's place, and come again in a run that is started again
                saves &= not monitor.skipped or step == config.steps or stopping
                with point("train.recorded", state):
                    if evaluates:
                        evaluate(state.model)
                    if saves:
                        checkpoints.save(step, state.model, dataclasses.replace(state, model=None), data)
                        goodput.spent("checkpoints")
                monitor.record(step, {f"goodput/{part}": share for part, share in goodput.shares().items()})
                monitor.flush()
                goodput.spent("other")
        finally:
            try:
                checkpoints.close()  # first: what shows the run is worth less than its last checkpoint
            finally:
                watchdog.put(None)
                monitor.close()
    goodput.spent("checkpoints")
    print("goodput:", ", ".join(f"{part} {share:.1%}" for part, share in goodput.shares().items()))
    if stopping:
        reason = signal.Signals(signals[0]).name if signals else "preemption"
        print(f"stopped by {reason} after step {step}, which is saved: the same command continues")
        raise SystemExit(ExitCode.PREEMPTED)
    print(f"checkpoints, metrics.jsonl, loss.png and TensorBoard events: {directory}")
