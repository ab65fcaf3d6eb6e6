"""Evaluation on tasks, against lm-eval's own model by transformers; not where one of them is missing."""

import dataclasses
import functools
import importlib
import json
import sys

import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    SMALL,
    WIDE,
    Engine,
    EngineModel,
    EngineSettings,
    InputError,
    ModelSettings,
    SamplingParams,
    evaluate_tasks,
    find_tasks,
    load_chat_template,
    load_ends,
    load_to_serve,
    load_tokenizer,
    read_metrics,
    save_as_transformers_does,
    save_hf,
    score_tasks,
    wide_model,
)

requires("evaluate_tasks/evaluate_tasks")

pytestmark = pytest.mark.filterwarnings("ignore")  # of lm-eval and what it imports
LONGEST = 128
FLAGS = {"max_length": LONGEST, "max_sequences": 4, "page_size": 4, "chunk": 16, "queue": 2}
TASKS = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_choice": ["red", "blue größer", "日本 is"],
        "doc_to_target": "{{n % 3}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "letters": {"output_type": "multiple_choice", "doc_to_choice": ["a", "b"], "doc_to_target": "{{n % 2}}"},
    "words": {
        "output_type": "generate_until",
        "doc_to_target": "x",
        "generation_kwargs": {"until": ["e", " "], "max_gen_toks": 12, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
    "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text * 3}}"},
}


@pytest.fixture(scope="module", autouse=True)
def lm_eval():
    """Imports lm-eval, which here does not read the 27,000 files of its own tasks."""
    tasks = pytest.importorskip("lm_eval.tasks", reason="needs lm-eval: pip install '.[lm_eval]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "TaskManager", functools.partial(tasks.TaskManager, include_defaults=False))
        yield importlib.import_module("lm_eval.evaluator")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, lm_eval):
    """Makes a Hugging Face directory, and tasks beside it with prompts of up to some more than the context."""
    folder = tmp_path_factory.mktemp("tasks")
    save_hf(WIDE, wide_model(), folder / "hf")
    tokenizer = save_as_transformers_does("llama3", folder / "hf")
    for name, more in (
        ("config.json", {"eos_token_id": tokenizer.eos_token_id}),  # where `generate` of transformers ends
        ("tokenizer_config.json", {"pad_token": tokenizer.eos_token}),  # else lm-eval adds a token to the vocabulary
    ):
        file = folder / "hf" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | more))
    lines = [json.dumps({"n": n, "text": "one prefix of all, " + f"{n * n} größer? " * n}) + "\n" for n in range(9)]
    (folder / "docs.jsonl").write_text("".join(lines))
    for name, task in TASKS.items():
        write_task(folder, name, **task)
    return folder


def write_task(folder, name, **task):
    files = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "docs.jsonl")}}}
    told = files | {"task": name, "test_split": "test", "doc_to_text": "{{text}}"} | task
    (folder / f"{name}.yaml").write_text(json.dumps(told))  # JSON is YAML
    return str(folder / f"{name}.yaml")


@pytest.fixture(scope="module")
def model(folder):
    """Returns what answers lm-eval by an engine, without lm-eval's class."""
    config, weights, mesh = load_to_serve(ModelSettings(hf=str(folder / "hf"), dtype="float32"))
    tokenizer = load_tokenizer(config.tokenizer)
    engine = Engine(config, weights, load_ends(tokenizer, config.tokenizer), EngineSettings(**FLAGS), mesh)
    return EngineModel(engine, tokenizer, load_chat_template(tokenizer, config.tokenizer))


@pytest.fixture(scope="module")
def ask(folder, model):
    """Returns a function from tasks to the results of lm-eval."""
    table = find_tasks(str(folder / "choices.yaml"))

    def ask(tasks, **settings):
        parts = model.engine, model.reader, model.template
        return evaluate_tasks(*parts, tasks, table, bootstrap_iters=0, **settings)

    return ask


def answers(found, task):
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    return [answer for sample in samples for (answer,) in sample["resps"]]


@pytest.mark.parametrize("is_chat", [False, True])
def test_answers_and_scores_are_those_of_transformers(is_chat, folder, lm_eval, model, ask):
    paths = [str(folder / f"{name}.yaml") for name in TASKS]
    ours = ask(",".join(paths), apply_chat_template=is_chat)
    reference = importlib.import_module("lm_eval.models.huggingface").HFLM(
        str(folder / "hf"), dtype="float32", device="cpu", batch_size=4, max_length=LONGEST - 1
    )
    asked = dict(tasks=paths, bootstrap_iters=0, apply_chat_template=is_chat)
    theirs = lm_eval.simple_evaluate(reference, **asked)
    assert answers(ours, "words") == answers(theirs, "words") and model.engine.prefix_hits
    for task in TASKS.keys() - {"words"}:
        a, b = (np.array(answers(found, task), float) for found in (ours, theirs))
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-6, err_msg=task)
        for name, value in theirs["results"][task].items():
            if isinstance(value, float):
                np.testing.assert_allclose(ours["results"][task][name], value, rtol=1e-5)


def test_a_greedy_continuation_is_told(model):
    prompt = model.tok_encode("one")
    (request,) = model.engine.generate([prompt], SamplingParams(max_tokens=5, ignore_eos=True))
    tokens = request.tokens
    others = [*tokens[:2], (tokens[2] + 1) % WIDE.vocab_size, *tokens[3:]]
    scores = model._loglikelihood_tokens([(None, prompt, x) for x in (tokens, others, tokens[:1], others[:3])])
    assert [is_greedy for _, is_greedy in scores] == [True, False, True, False]
    np.testing.assert_allclose(scores[0][0], sum(request.logprobs), atol=1e-4)


def generating(**settings):
    return TASKS["words"] | {"generation_kwargs": settings}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            {"output_type": "loglikelihood", "doc_to_text": "a", "doc_to_target": "", "target_delimiter": ""},
            "a continuation has 0",
        ),
        ({"output_type": "multiple_choice", "doc_to_choice": ["a" * 200], "doc_to_target": 0}, "must be 1 to 127"),
        (generating(max_gen_toks=127), "max_gen_toks 127: must be less than 127"),
        (generating(max_gen_toks=9, num_beams=4), "generation_kwargs num_beams: not supported"),
        (generating(max_gen_toks=9, temperature=-1, do_sample=True), "--temperature -1"),
        ({"output_type": "multiple_choice", "doc_to_choice": "{{none.x}}", "doc_to_target": 0}, "UndefinedError"),
        ({"dataset_kwargs": {"data_files": {"test": "/none.jsonl"}}}, "FileNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_task_is_told(task, message, folder, ask):
    with pytest.raises(InputError, match=message):
        ask(write_task(folder, "wrong", **task))


def test_the_command_writes_what_it_finds(folder, monkeypatch, capsys):
    main = importlib.import_module("..evaluate_tasks", __package__).main
    out = folder / "out.json"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in FLAGS.items()]
    task = str(folder / "letters.yaml")
    command = ["evaluate_tasks", f"--hf={folder / 'hf'}", "--dtype=float32", *flags]
    monkeypatch.setattr(sys, "argv", [*command, f"--tasks={task}", "--limit=4", f"--out={out}"])
    main()
    assert "|letters" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["n-samples"]["letters"]["effective"] == 4 and 0 <= found["results"]["letters"]["acc,none"] <= 1
    for more, message in (
        (["--tasks=arc_eazy"], "task 'arc_eazy': lm-eval has none of this name"),
        ([f"--tasks={task}", "--include-path=/none"], "--include-path /none: there is no such folder"),
        ([f"--tasks={task}", "--out=/none/out.json"], "/none/out.json: cannot be read or written: No such file"),
    ):
        monkeypatch.setattr(sys, "argv", [*command, *more])
        with pytest.raises(SystemExit):
            main()
        assert message in capsys.readouterr().err


def test_training_evaluates_on_tasks(folder, tmp_path):
    """As the command does with the checkpoint of the same step."""
    train = importlib.import_module("..trainer", __package__).train
    given = {"eval_every": 1, "eval_batches": 1, "eval_tasks": str(folder / "choices.yaml"), "eval_tasks_limit": 3}
    config = dataclasses.replace(SMALL, steps=2, checkpoint_dir=str(tmp_path / "run"), **given)
    train(config)
    (told,) = (record for record in read_metrics(tmp_path / "run") if "eval/choices/acc" in record)
    config, weights, mesh = load_to_serve(ModelSettings(checkpoint_dir=str(tmp_path / "run")))
    found = score_tasks(dataclasses.replace(config, **given), weights, mesh, find_tasks(str(folder / "choices.yaml")))
    assert told["step"] == 2 and {"eval/choices/acc", "eval/choices/acc_norm"} == found.keys()
    assert {name: told[name] for name in found} == found
    with pytest.raises(InputError, match="--eval-tasks-every 3: must be a multiple of --eval-every, 2"):
        train(dataclasses.replace(config, **given | {"eval_every": 2, "eval_tasks_every": 3}))
    with pytest.raises(InputError, match="--eval-tasks: comes with evaluations on held-out data"):
        train(dataclasses.replace(config, **given, eval_share=0.0))
