"""The command line of evaluation on tasks."""

import dataclasses
import json
from pathlib import Path

import tyro

from generator.language.roles import EngineSettings, ModelSettings, ending_with_messages


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(ModelSettings):
    """Evaluates the newest checkpoint of a run, or the model of a Hugging Face directory, on tasks of lm-eval."""

    engine: tyro.conf.OmitArgPrefixes[EngineSettings]
    tasks: str  # names of tasks or groups, or paths of .yaml files, comma-separated
    include_path: str = ""  # a folder of more tasks
    num_fewshot: int | None = None  # examples in a prompt; default: as each task says
    limit: float | None = None  # documents of each task; below 1: a share of them
    gen_kwargs: str = ""  # for tasks that generate, such as max_gen_toks=64,temperature=0.7,do_sample=True
    apply_chat_template: bool = False  # asks in the form of a chat
    log_samples: bool = False  # each document and answer in --out too
    out: str = ""  # a file for the results, JSON


@ending_with_messages()
def main() -> None:
    settings = tyro.cli(TaskSettings, prog=f"python -m {__package__}.evaluate_tasks")
    # after help and refusals, as they import JAX
    from generator.language.roles import (
        Engine,
        evaluate_tasks,
        find_tasks,
        import_lm_eval,
        load_chat_template,
        load_ends,
        load_to_serve,
        load_tokenizer,
    )

    table = find_tasks(settings.tasks, settings.include_path)
    if settings.out:
        Path(settings.out).touch()  # where it cannot be written, this is told before the evaluation
    config, model, mesh = load_to_serve(settings)
    tokenizer = load_tokenizer(settings.tokenizer or config.tokenizer)
    engine = Engine(config, model, load_ends(tokenizer, config.tokenizer), settings.engine, mesh)
    names = "num_fewshot", "limit", "gen_kwargs", "apply_chat_template", "log_samples"
    fields = {name: getattr(settings, name) for name in names}
    template = load_chat_template(tokenizer, settings.tokenizer or config.tokenizer)
    results = evaluate_tasks(engine, tokenizer, template, settings.tasks, table, **fields)
    for kind in ("results", "groups"):
        if results.get(kind):
            print(import_lm_eval().utils.make_table(results, kind))
    if settings.out:
        Path(settings.out).write_text(json.dumps(results, indent=2, default=str, ensure_ascii=False))


if __name__ == "__main__":
    main()
