"""Real clients against a server: installs openai, guidellm and lm-eval in an environment of their own, and runs them.

python benchmarks/clients.py VENV [PACKAGE]      prints a table; exit code 1 where a client does not complete

The model is a small Llama of random weights with a token for each byte. What lm-eval finds through the server is
compared with what it finds by transformers. Nothing is fetched but the clients themselves, into VENV.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

GENERATED = Path(__file__).resolve().parents[1] / "generated"
CLIENTS = ["openai>=1.60", "guidellm==0.8.1", "lm-eval[api,hf]==0.4.13", "tenacity"]
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}

MODEL = """
import json, pathlib, sys, torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

folder = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
sizes = dict(vocab_size=258, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
ends = dict(bos_token_id=256, eos_token_id=257, max_position_embeddings=2048, tie_word_embeddings=False)
transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **ends, initializer_range=0.2)).save_pretrained(folder)
tokenizer = Tokenizer(models.BPE({x: i for i, x in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<s>", "</s>"])
tokenizer.save(str(folder / "tokenizer.json"))
settings = dict(bos_token="<s>", eos_token="</s>", tokenizer_class="PreTrainedTokenizerFast")
settings["chat_template"] = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
"""

OPENAI = """
import sys, openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
(model,) = client.models.list()
asked = dict(model=model.id, messages=[{"role": "user", "content": "Hello"}], max_completion_tokens=40, seed=1)
chat = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)
events = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
assert "".join(c.delta.content for e in events for c in e.choices) == chat.choices[0].message.content
assert events[-1].usage == chat.usage and len(chat.choices[0].logprobs.content) == chat.usage.completion_tokens
text = client.completions.create(model=model.id, prompt=["a", "b"], n=2, max_tokens=9, logprobs=2, echo=True)
assert [choice.index for choice in text.choices] == [0, 1, 2, 3]
print("chat, stream, logprobs, completions")
"""

TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_choice": ["first", "second one"], "doc_to_target": 0},
    "words": {
        "output_type": "generate_until",
        "doc_to_target": "x",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": 20, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    },
}


def run(*command: str | Path) -> str:
    process = subprocess.run(list(map(str, command)), env=OFFLINE, capture_output=True, text=True, timeout=600)
    if process.returncode:
        raise RuntimeError(f"{command}: {process.stdout[-3000:]}{process.stderr[-3000:]}")
    return process.stdout


@contextlib.contextmanager
def served(package: str, model: Path) -> Iterator[str]:
    """The address of a server."""
    command = [sys.executable, "-m", f"{package}.serve", "--hf", str(model), "--port", "0", "--dtype", "float32"]
    with subprocess.Popen(command, cwd=GENERATED, env=OFFLINE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(line.split()[-1] for line in process.stdout or () if " at http://" in line)
        finally:
            process.terminate()


def use_openai(python: Path, url: str, model: Path, folder: Path) -> str:
    return run(python, "-c", OPENAI, url).strip()


def use_guidellm(python: Path, url: str, model: Path, folder: Path) -> str:
    """Poisson arrivals of synthetic prompts, then prompts from a file, by text and by chat."""
    told = []
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"prompt {i} "}) + "\n" for i in range(20)))
    synthetic = "kind=synthetic_text,prompt_tokens=40,output_tokens=12"
    for form, data in [("completions", synthetic), ("chat_completions", f"kind=json_file,path={folder}/prompts.jsonl")]:
        report = folder / f"{form}.json"
        run(
            *(python.with_name("guidellm"), "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={url},request_format=/v1/{form.replace('_', '/')}"),
            *("--profile", "kind=poisson,rate=4", "--constraint", "kind=max_requests,count=12"),
            *("--tokenizer", f"kind=huggingface_auto,model={model}", "--data", data),
            *("--output", f"kind=json,path={report}"),
        )
        totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
        if totals["successful"] < 12 or totals["errored"]:
            raise RuntimeError(f"{form}: {totals}")
        told.append(f"{form}: {totals['successful']} of {totals['total']}")
    return ", ".join(told)


def use_lm_eval(python: Path, url: str, model: Path, folder: Path) -> str:
    """Log-likelihoods and greedy texts, through the server and by transformers."""
    docs = folder / "docs.jsonl"
    docs.write_text("".join(json.dumps({"text": f"Question {i * i}: größer?"}) + "\n" for i in range(8)))
    tasks = folder / "tasks"
    tasks.mkdir()
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(docs)}}, "test_split": "test"}
    for name, task in TASKS.items():
        told = common | {"task": name, "doc_to_text": "{{text}}"} | task
        (tasks / f"{name}.yaml").write_text(json.dumps(told))  # JSON is YAML
    found = {}
    ways = {
        "local-completions": f"base_url={url}/v1/completions,tokenizer={model},tokenizer_backend=huggingface",
        "hf": f"pretrained={model},dtype=float32",
    }
    for kind, arguments in ways.items():
        out = folder / kind
        run(
            *(python.with_name("lm_eval"), "run", "--model", kind, "--model_args", f"{arguments},max_length=2048"),
            *("--tasks", ",".join(TASKS), "--include_path", tasks, "--output_path", out, "--log_samples"),
            *("--batch_size", "1"),
        )
        lines = {path.name.split("_")[1]: path.read_text().splitlines() for path in out.rglob("samples_*.jsonl")}
        found[kind] = {name: [json.loads(line)["resps"] for line in lines[name]] for name in TASKS}
    ours, theirs = found.values()
    if ours["words"] != theirs["words"]:
        raise RuntimeError(f"greedy texts differ: {ours['words']} {theirs['words']}")
    pairs = [
        (float(a[0][0]), float(b[0][0]), str(a[0][1]) == str(b[0][1]))
        for x, y in zip(ours["choices"], theirs["choices"], strict=True)
        for a, b in zip(x, y, strict=True)
    ]
    difference = max(abs(a - b) for a, b, _ in pairs)
    if difference > 1e-3 or not all(same for *_, same in pairs):
        raise RuntimeError(f"log-likelihoods differ: {pairs}")
    return f"{len(pairs)} log-likelihoods within {difference:.1e} of transformers, {len(ours['words'])} texts equal"


def main() -> int:
    environment, package = Path(sys.argv[1]).absolute(), (sys.argv[2:] or ["llama2_cpu"])[0]
    python = environment / "bin/python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        for needs in (["torch==2.13.0"], CLIENTS):  # torch first and alone: a build without CUDA, where there is one
            subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
    clients: dict[str, Callable[..., str]] = {"openai": use_openai, "guidellm": use_guidellm, "lm-eval": use_lm_eval}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        run(python, "-c", MODEL, model)
        with served(package, model) as url:
            for name, use in clients.items():
                try:
                    print(f"| {name} | {use(python, url, model, Path(folder))} |", flush=True)
                except Exception:
                    failures += 1
                    print(f"| {name} | failed |", flush=True)
                    traceback.print_exc()
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
