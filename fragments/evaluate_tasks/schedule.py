"""Evaluation on tasks while training, on the weights as they are on the devices."""

from typing import Any

import jax
from jax.sharding import Mesh

from generator.language import splice
from generator.language.roles import (
    Config,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    Monitor,
    NonNegativeInt,
    evaluate_tasks,
    find_tasks,
    load_ends,
    load_tokenizer,
)


class TrainConfig:
    eval_tasks: str = ""  # tasks of lm-eval, or .yaml files, comma-separated
    eval_tasks_every: NonNegativeInt = 0  # steps between them, a multiple of eval_every; the last step has one too
    eval_tasks_limit: NonNegativeInt = 0  # documents of each task; 0: all


@splice("check_config.together")
def _(config, problems):
    if config.eval_tasks and config.eval_tasks_every % config.eval_every:
        rule = f"must be a multiple of --eval-every, {config.eval_every}"
        problems.append(f"--eval-tasks-every {config.eval_tasks_every}: {rule}")


def score_tasks(config: Config, model: Decoder, mesh: Mesh, table: Any) -> dict[str, float]:
    """Returns the metrics of --eval-tasks, by an engine whose memory is free again afterwards."""
    tokenizer = load_tokenizer(config.tokenizer)
    sizes = EngineSettings(max_length=config.sequence_length)
    engine = Engine(config, model, load_ends(tokenizer, config.tokenizer), sizes, mesh)
    options = {"limit": config.eval_tasks_limit or None, "log_samples": False}
    results = evaluate_tasks(engine, tokenizer, None, config.eval_tasks, table, **options)
    numbers = {(task, name): x for task, scores in results["results"].items() for name, x in scores.items()}
    numbers = {key: float(x) for key, x in numbers.items() if isinstance(x, float) and "_stderr," not in key[1]}
    return {f"eval/{task}/{name.removesuffix(',none')}": x for (task, name), x in numbers.items()}


def open_tasks(config: Config, mesh: Mesh) -> Any:
    """Returns lm-eval's table of tasks; None without --eval-tasks. Raises InputError if they cannot be evaluated."""
    if not config.eval_tasks:
        return None
    if jax.process_count() > 1 or any(mesh.shape.get(axis, 1) > 1 for axis in ("stage", "context")):
        raise InputError("--eval-tasks: needs one process, without --mesh-stage and --mesh-context")
    return find_tasks(config.eval_tasks)


def record_tasks(step: int, config: Config, model: Decoder, mesh: Mesh, table: Any, monitor: Monitor) -> None:
    """Evaluates on --eval-tasks if the step is one that does."""
    every = config.eval_tasks_every
    if config.eval_tasks and (step == config.steps or (every > 0 and step % every == 0)):
        scores = score_tasks(config, model, mesh, table)
        monitor.log_metrics(step, scores)
        print(f"step {step}: {', '.join(f'{name} {x:.4f}' for name, x in scores.items())}", flush=True)


@splice("train.ready")
def _(config, mesh):
    tasks = open_tasks(config, mesh)


@splice("train.directory")
def _(config, held_out):
    if config.eval_tasks and not held_out:
        raise InputError("--eval-tasks: comes with evaluations on held-out data: give --eval-share or --eval-data")


@splice("train.evaluated_first", "train.evaluated", before="goodput")
def _(step, config, state, mesh, tasks, monitor):
    record_tasks(step, config, state.model, mesh, tasks, monitor)
