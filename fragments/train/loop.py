"""The training loop: trains, evaluates, saves, and resumes from a checkpoint."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    Batches,
    Checkpoints,
    Config,
    InputError,
    Monitor,
    PositiveInt,
    TrainState,
    absolute,
    abstract,
    abstract_batch,
    changes,
    check_config,
    checkpoint_items,
    compile_step,
    create_state,
    eval_step,
    held_out_batches,
    make_mesh,
    new_state,
)


class TrainConfig:
    eval_every: PositiveInt = 100  # steps between evaluations on held-out data; the last step has one as well
    eval_batches: PositiveInt = 8  # batches in an evaluation, the same ones each time
    eval_first: bool = False  # evaluates before the first step too, as it does with imported weights
    checkpoint_every: PositiveInt = 100  # steps between checkpoints; the last step has one as well


def restore_or_create(config: Config, mesh: Mesh, checkpoints: Checkpoints, data: Batches) -> tuple[int, TrainState]:
    """Returns step and state from the newest checkpoint, or else 0 and a new state."""
    with point("restore_or_create.target", config, mesh):
        target = checkpoint_items(abstract(lambda: new_state(config), mesh))
    with point("restore_or_create.restore", config, checkpoints, target, data):
        step, saved, items = checkpoints.restore(lambda _: target, data) or (0, config, {})
    changed = changes(saved, config) or "none"
    text = f"continues after step {step} in {checkpoints.directory}; settings changed: {changed}"
    print(text if items else f"new run in {checkpoints.directory}")
    if "training" in items:
        return step, dataclasses.replace(items["training"], model=items["model"])
    return step, create_state(config, mesh, items.get("model"))  # of imported weights, or new


def evaluate_held_out(
    compiled: Callable, step: int, state: TrainState, held_out: list[dict], data: Batches, monitor: Monitor
) -> None:
    """Records and prints the mean loss over held-out batches; `compiled` is `eval_step`."""
    with point("evaluate_held_out.sums", compiled, state, held_out, data):
        sums = [compiled(state.model, data.to_devices(batch)) for batch in held_out]
    with point("evaluate_held_out.mean", sums, held_out, step, monitor):
        total, targets = (sum(float(x[name]) for x in sums) for name in ("cross_entropy", "targets"))
        monitor.log_metrics(step, {"eval/loss": total / targets})
        print(f"step {step}: loss on held-out data {total / targets:.4f}", flush=True)


def train(config: Config) -> None:
    """Trains up to `config.steps`, from the newest checkpoint if the directory holds one."""
    point("train.start", config)
    check_config(config)
    point("train.settings", config)
    if not config.checkpoint_dir and jax.process_count() > 1:
        raise InputError("--checkpoint-dir is missing: several processes need one that all of them see")
    with point("train.mesh", config):
        mesh = make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor)
    batches = abstract_batch(config, mesh)
    point("train.ready", config, mesh)
    with point("train.data", config, batches):
        data = Batches(config, batches["tokens"].sharding)
        held_out = held_out_batches(config, data.rows)
    directory = absolute(config.checkpoint_dir or time.strftime("runs/%Y%m%d-%H%M%S"))
    with contextlib.ExitStack() as stack:
        point("train.directory", stack, directory, config, held_out)
        stack.enter_context(jax.set_mesh(mesh))
        checkpoints = Checkpoints(directory, config)
        step, state = restore_or_create(config, mesh, checkpoints, data)
        point("train.restored", config, mesh, step, state, data, checkpoints)
        if step >= config.steps:
            print(f"all {config.steps} steps are done: give more --steps to train on")
            return
        checkpoints.open()
        with point("train.compile", state, batches):
            compiled_step = compile_step(state, batches, config)
        with point("train.eval_step", data):
            compiled_eval_step = jax.jit(functools.partial(eval_step, config=config))
        with point("train.monitor", directory, config, step):
            monitor = stack.enter_context(contextlib.closing(Monitor(directory, config, step)))
        point("train.monitored", stack, monitor)
        stack.callback(checkpoints.close)  # closes first, as the last checkpoint matters more than metrics
        point("train.compiled", stack, directory, step, config, state, data, monitor, checkpoints, mesh)
        pending = None  # the last step and its metrics, which the device is still working on
        is_last = False
        if step == 0 and held_out and (config.eval_first or checkpoints.steps()):  # of imported weights
            evaluate_held_out(compiled_eval_step, step, state, held_out, data, monitor)
            point("train.evaluated_first", step, state, config, mesh, monitor)
        while not is_last:
            point("train.before_batch", config, monitor)
            with point("train.batch", checkpoints, step, state, data, monitor):
                batch = data.to_devices(next(data))
            point("train.before_step", pending, step, data, state, directory)
            with point("train.step", compiled_step, state, batch, step, config):
                state, metrics = compiled_step(state, batch)
            step += 1
            metrics["train/epoch"] = data.epoch()
            point("train.after_step", step, metrics, data=data)
            if pending:
                monitor.step(*pending)
            pending = step, metrics
            with point("train.is_last", step, config, checkpoints):
                is_last = step == config.steps
            with point("train.evaluation_due", step, config, held_out, is_last):
                evaluation_due = held_out and (is_last or step % config.eval_every == 0)
            with point("train.checkpoint_due", step, config, is_last):
                checkpoint_due = is_last or step % config.checkpoint_every == 0
            if evaluation_due or checkpoint_due:
                monitor.step(*pending)
                pending = None
                point("train.caught_up")
                with point("train.recorded", state):
                    if evaluation_due:
                        with point("train.evaluate", step, state, data, checkpoints):
                            evaluate_held_out(compiled_eval_step, step, state, held_out, data, monitor)
                        point("train.evaluated", step, state, config, mesh, monitor)
                    # none after a skipped step: old checkpoints stay, and a resumed run repeats the step
                    if checkpoint_due and (is_last or not monitor.skipped):
                        with point("train.save", checkpoints, step, state, data):
                            checkpoints.save(step, checkpoint_items(state), data)
                        point("train.saved")
                point("train.flush", step, monitor)
                monitor.restart_clock()
                point("train.flushed")
    point("train.end", step, checkpoints, directory, config)
    print(f"checkpoints and metrics: {directory}")
