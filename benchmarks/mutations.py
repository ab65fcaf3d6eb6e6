"""Faults put into fragments and into the generator, one at a time: the tests of `make test` find each of them.

    python benchmarks/mutations.py                each with the tests that should find it: half an hour of CPU
    python benchmarks/mutations.py 3 17           these
    python benchmarks/mutations.py --all          what these tests miss, with all that `make test` runs

Works on a copy of what git tracks. The packages that a fragment's tests are of are woven anew, as `make build` would.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

ROOT = Path(__file__).resolve().parents[1]
PARITY = "tests/families/test_parity.py -k"


class Mutation(NamedTuple):
    """A fault.

    Attributes:
        path: of the file, with `old` once in it, in the place of which `new` comes.
        tests: arguments of pytest: of this repository, or of one package, whose name they begin with.
    """

    path: str
    old: str
    new: str
    fault: str
    tests: str


def fragment(name: str, old: str, new: str, fault: str, tests: str) -> Mutation:
    return Mutation(f"fragments/{name}.py", old, new, fault, tests)


def generator(name: str, old: str, new: str, fault: str, tests: str) -> Mutation:
    return Mutation(f"generator/{name}.py", old, new, fault, tests)


MUTATIONS = [
    # model and kernels
    fragment(
        "attention/attend_tiles",
        "visible = keys <= queries",
        "visible = keys <= queries + 1",
        "a token sees the next one",
        "llama2_cpu/tests/test_attention.py",
    ),
    fragment(
        "attention/attend_tiles",
        "query_ids[:, None, :, None] == others[:, None, None]",
        "query_ids[:, None, :, None] >= others[:, None, None]",
        "packed documents see those before them",
        "llama2_cpu/tests/test_attention.py",
    ),
    fragment(
        "attention/attend_tiles",
        "scores = scale * scores",
        "pass",
        "scores are not scaled",
        "llama2_cpu/tests/test_attention.py",
    ),
    fragment(
        "model/rope",
        "second * cos + first * sin",
        "second * cos - first * sin",
        "the second half turns the other way",
        "llama2_cpu/tests/test_rope.py llama2_cpu/tests/test_llama.py",
    ),
    fragment(
        "model/rms_norm",
        "jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon",
        "(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon) * 1.01",
        "a norm is off by half a percent",
        "llama2_cpu/tests/test_llama.py",
    ),
    fragment(
        "model/sliding_window", "distance < window", "distance <= window", "a window is one longer", f"{PARITY} gemma2"
    ),
    fragment(
        "model/attention_soft_cap",
        "soft_cap * jnp.tanh(scores / soft_cap)",
        "jnp.tanh(scores / soft_cap)",
        "the cap's scale is dropped",
        f"{PARITY} gemma2",
    ),
    fragment(
        "model/learned_positions",
        "jnp.take(self.positions[...], row, axis=0)",
        "self.positions[...][None, : x.shape[1]]",
        "positions are places in the row",
        f"{PARITY} gpt2",
    ),
    fragment(
        "model/balance_bias",
        "weights = jnp.take_along_axis(scores, chosen, axis=-1)",
        "weights = jnp.take_along_axis(ranks, chosen, axis=-1)",
        "the bias weighs as well as chooses",
        "tests/families/test_deepseek.py -k weigh",
    ),
    fragment(
        "model/lora",
        "self.scale = config.lora_alpha / config.lora_rank",
        "self.scale = config.lora_alpha",
        "adapters are not scaled by their rank, which no other implementation would read so",
        "tests/families/test_lora.py",
    ),
    fragment(
        "kernels/grouped_blocks",
        "- (jnp.cumsum(sizes) - sizes)",
        "- jnp.cumsum(sizes)",
        "rows go to the blocks of the expert before",
        f"{PARITY} olmoe",
    ),
    # parallel
    fragment(
        "model/whole_experts",
        'numbers = chosen - experts.number * jax.lax.axis_index(RULES["mlp"])',
        "numbers = chosen",
        "each device takes its experts for the first ones",
        "tests/families/test_whole_experts.py",
    ),
    fragment(
        "train/loss",
        "log_normalizer = jax.nn.logsumexp(log_sums, axis=0)",
        "log_normalizer = log_sums.max(axis=0)",
        "shares of the vocabulary are not summed",
        "tests/families/test_loss.py",
    ),
    fragment(
        "train/loss",
        "result = target_logits.sum(axis=0) - log_normalizer, log_normalizer",
        "result = target_logits[0] - log_normalizer, log_normalizer",
        "targets count on the first device alone",
        "tests/families/test_loss.py",
    ),
    # train
    fragment(
        "train/objectives",
        '-jnp.sum(log_likelihood * batch["weights"])',
        "-jnp.sum(log_likelihood)",
        "padding counts in the loss",
        "llama2_cpu/tests/test_train.py",
    ),
    fragment(
        "train/step",
        "optax.microbatch(gradient, 1, config.batch_size // config.accumulation)",
        "optax.microbatch(gradient, 1, config.batch_size)",
        "the batch is not cut into microbatches: no number changes, only memory",
        "llama2_cpu/tests/test_train.py llama2_cpu/tests/test_faults.py",
    ),
    fragment(
        "train/step",
        "gradients = jax.tree.map(lambda g: g / target_count, gradients)",
        'gradients = jax.tree.map(lambda g: g / len(batch["tokens"]), gradients)',
        "gradients are divided by rows",
        "llama2_cpu/tests/test_train.py llama2_cpu/tests/test_adamw.py",
    ),
    fragment(
        "train/step",
        'finite = jnp.isfinite(norm + sums["cross_entropy"])',
        'finite = jnp.isfinite(sums["cross_entropy"])',
        "infinite gradients are taken",
        "llama2_cpu/tests/test_faults.py",
    ),
    fragment(
        "train/cosine",
        "(updates_done + 1)",
        "(updates_done)",
        "the rate is late by a step",
        "llama2_cpu/tests/test_cosine.py",
    ),
    fragment("train/decays", "len(p.axes) > 1", "len(p.axes) > 0", "norms decay", "llama2_cpu/tests/test_adamw.py"),
    fragment(
        "train/adamw",
        "optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), rule)",
        "optax.chain(rule, optax.clip_by_global_norm(config.max_gradient_norm))",
        "updates are clipped, not gradients",
        "llama2_cpu/tests/test_adamw.py",
    ),
    # data
    fragment(
        "data/chat_data",
        '"targets": token[1:]',
        '"targets": token[:-1]',
        "a token is to predict itself",
        "llama2_cpu/tests/test_data.py",
    ),
    fragment(
        "data/batches",
        "(0, length - sum(sizes)))",
        '(0, length - sum(sizes)), "edge")',
        "padding has weight",
        "llama2_cpu/tests/test_data.py",
    ),
    fragment(
        "data/batches",
        "MapDataset.range(first, last)",
        "MapDataset.range(first + 1, last)",
        "the first document is read by nobody",
        "llama2_cpu/tests/test_data.py",
    ),
    fragment(
        "formats/formats",
        "elif row.strip():",
        "else:",
        "blank lines are documents",
        "llama2_cpu/tests/test_documents.py",
    ),
    # checkpoints and storage
    fragment(
        "cluster/damage",
        "agree(not np.array_equal(sums, saved_sums))",
        "agree(False)",
        "a damaged checkpoint is used",
        "llama2_cpu/tests/test_damage.py -k written",
    ),
    fragment(
        "checkpoint/checkpoints",
        '"max_to_keep": self.config.keep_last',
        '"max_to_keep": self.config.keep_last + 1',
        "one more checkpoint is kept",
        "llama2_cpu/tests/test_checkpoint.py -k kept",
    ),
    fragment(
        "checkpoint/checkpoints",
        "data.set_state(place, step)",
        "data.set_state(place, step + 1)",
        "data goes on from another place",
        "llama2_cpu/tests/test_checkpoint.py",
    ),
    fragment(
        "cluster/lock",
        "and not text.startswith(self.holder)",
        "and text.startswith(self.holder)",
        "a lock of others is none",
        "llama2_cpu/tests/test_checkpoint.py llama2_cpu/tests/test_storage.py",
    ),
    # huggingface
    fragment(
        "model/attention",
        'self_attn.k_proj.weight", "d k h -> (k h) d"',
        'self_attn.k_proj.weight", "d k h -> (h k) d"',
        "keys are read in another order",
        "llama2_cpu/tests/test_llama.py llama2_cpu/tests/test_huggingface.py",
    ),
    fragment(
        "model/attention",
        'hf["hidden_size"] // hf["num_attention_heads"]',
        'hf["hidden_size"] // hf["num_key_value_heads"]',
        "the size of a head that is left out",
        "llama2_cpu/tests/test_llama.py llama2_cpu/tests/test_huggingface.py",
    ),
    fragment(
        "huggingface/huggingface",
        '{"float16": "bfloat16"}.get(hf["dtype"], hf["dtype"])',
        'hf["dtype"]',
        "fp16 is computed in fp16",
        "llama2_cpu/tests/test_convert.py -k dtype",
    ),
    # engine and pages
    fragment(
        "pages/attend_list",
        "jnp.where(places < before[row][:, None], places, UNSEEN)",
        "jnp.where(places <= before[row][:, None], places, UNSEEN)",
        "a page's next place, of another sequence, is seen",
        "llama2_cpu/tests/test_engine.py -k log_probabilities tests/robustness/test_schedules.py",
    ),
    fragment(
        "pages/pages",
        "page = jnp.where(positions < 0, 0, page)",
        "page = page",
        "padding is written to the first page",
        "llama2_cpu/tests/test_engine.py",
    ),
    fragment(
        "pages/pool",
        "self.ref_count[page] += 1",
        "self.ref_count[page] = 1",
        "a shared page is freed when one sequence ends",
        "llama2_cpu/tests/test_engine.py",
    ),
    fragment(
        "pages/int8",
        "axis=-1), 1e-30) / 127",
        "axis=-1), 1e-30) / 128",
        "the largest number overflows",
        "llama2_cpu/tests/test_int8_kv_cache.py",
    ),
    fragment(
        "engine/engine",
        "while len(request.digests) < (len(sequence) - 1) // size:",
        "while len(request.digests) < len(sequence) // size:",
        "no token of a cached prompt is left to compute",
        "llama2_cpu/tests/test_engine.py",
    ),
    fragment(
        "engine/sampling",
        "axis=-1) > 1 - top_p[:, None]",
        "axis=-1) > top_p[:, None]",
        "top-p keeps the other share",
        "llama2_cpu/tests/test_sampling.py -k filter",
    ),
    fragment(
        "engine/sampling",
        "metadata.frequency_penalty[:, None] * added",
        "metadata.frequency_penalty[:, None] * (added > 0)",
        "a penalty does not grow",
        "llama2_cpu/tests/test_sampling.py -k penalties",
    ),
    fragment(
        "engine/request",
        "count = ends[0] + 1 if ends else len(tokens)",
        "count = len(tokens)",
        "draft tokens after eos stay",
        "llama2_cpu/tests/test_draft_ngram.py",
    ),
    # serving
    fragment(
        "serve/serve",
        "if self.keys and not key:",
        "if self.keys and key:",
        "the right key is refused",
        "llama2_cpu/tests/test_serve.py -k key",
    ),
    fragment(
        "serve/serve",
        "size = self.config.vocab_size",
        "size = self.config.vocab_size + 1",
        "more tokens are asked for by top_k than there are",
        "llama2_cpu/tests/test_serve.py",
    ),
    fragment(
        "openai/fields",
        "self.max_completion_tokens or self.max_tokens",
        "self.max_tokens",
        "a bound that a client gives is ignored",
        "llama2_cpu/tests/test_serve.py",
    ),
    # the generator
    generator(
        "weave/order",
        "follows[other].add(index)",
        "follows[index].add(other)",
        "`before` means after",
        "tests/weave/test_order.py tests/weave/test_splice.py",
    ),
    generator(
        "recipe/expressions", "ast.Lt: op.lt", "ast.Lt: op.le", "a bound is off by one", "tests/weave/test_fill.py"
    ),
    generator(
        "weave/link",
        "if key in definitions:",
        "if False:",
        "of two definitions of a name the last is taken",
        "tests/weave/test_link.py",
    ),
    generator(
        "thread/values",
        "values[need.name].readers.add(need.function)",
        "pass",
        "what a splice reads is not known to be read",
        "tests/weave/test_thread_refused.py",
    ),
    generator(
        "thread/refuse",
        "    check_mentions(plan)\n",
        "",
        "uses that are not followed pass",
        "tests/weave/test_promise.py",
    ),
    generator(
        "recipe/recipe",
        "    check_requirements(selection, library)\n",
        "",
        "requires and excludes are not read",
        "tests/test_recipe.py",
    ),
    generator(
        "code/traced",
        "self.origin.line + row)",
        "self.origin.line)",
        "every line of a piece has its first line's origin",
        "tests/test_sourcemap.py tests/test_traced.py",
    ),
    generator(
        "disk/status",
        "if built and digest in built:",
        "if built:",
        "an edit is overwritten by the next build",
        "tests/commands/test_build.py tests/commands/test_check.py",
    ),
    generator(
        "disk/lock",
        "is_sealed = lock.text == text",
        "is_sealed = True",
        "a lock that was edited is believed",
        "tests/commands/test_check.py",
    ),
    generator(
        "checkpoint/fit",
        "self.settings |= settings",
        "self.settings = settings",
        "a rule's settings replace those of another",
        "tests/commands/test_new.py -k rule",
    ),
]


class Copy:
    """A copy of the repository, in which one fault stands at a time."""

    def __init__(self, root: Path):
        self.root, self.library = root, Library.read([ROOT])
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, tracked.split("\0")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
        (root / ".venv").symlink_to(ROOT / ".venv")

    def found(self, mutation: Mutation, everything: bool) -> str:
        """The test that fails, or why there is none to run; "" where all pass."""
        text = (ROOT / mutation.path).read_text()
        changed = {mutation.path: text.replace(mutation.old, mutation.new)}
        for group in self.groups(mutation.tests):
            if package := "" if group[0].startswith("tests/") else group[0].partition("/")[0]:
                try:  # with all parts
                    woven = weave(*package.rsplit("_", 1), self.library.with_texts(changed)).files
                except LoomError as error:
                    return f"refused by weaving: {error}".splitlines()[0]
                changed |= {f"woven/{package}/{path}": text for path, text in woven.items()}
        before = {path: (self.root / path).read_bytes() for path in changed if (self.root / path).exists()}
        try:
            for path, content in changed.items():
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_text(content)
            return next(filter(None, map(self.failed, self.groups(mutation.tests))), "") or (
                self.failed_of_all(mutation) if everything else ""
            )
        finally:
            for path, content in before.items():
                (self.root / path).write_bytes(content)
            shutil.rmtree(self.root / "woven", ignore_errors=True)

    def groups(self, tests: str) -> list[list[str]]:
        """Arguments of pytest for a package, then those for this repository; -k is of the first of them."""
        paths, _, expression = tests.partition(" -k ")
        expression, *more = expression.split(" ")
        every = [*paths.split(), *more]
        own = [path for path in every if path.startswith("tests/")]
        parts = [part for part in ([path for path in every if path not in own], own) if part]
        return [[*parts[0], *(["-k", expression] if expression else [])], *parts[1:]]

    def failed(self, arguments: list[str]) -> str:
        if arguments[0].startswith("tests/"):
            folder, options = self.root, ["-m", "not slow"]
        else:
            folder, options = self.root / "woven", ["-c", "/dev/null", "--rootdir=.", "-W", "error"]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *arguments]
        return self.run(command, folder)

    def failed_of_all(self, mutation: Mutation) -> str:
        self.run([sys.executable, "-m", "generator", "build", "--all"], self.root)
        said = self.run(["make", "test-generator", "test-woven"], self.root)
        self.run(["git", "-C", str(ROOT), "checkout-index", "--all", "--force", f"--prefix={self.root}/"], self.root)
        return said

    def run(self, command: list[str], folder: Path) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.root), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode < 0:
            sys.exit(f"{shlex.join(command)} was ended by signal {-done.returncode}")
        names = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return "" if not done.returncode else (names or [f"exit code {done.returncode}: {done.stderr[-200:]}"])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = range(1, len(MUTATIONS) + 1)
    parser.add_argument("numbers", nargs="*", type=int, metavar="N", help=f"1 to {len(MUTATIONS)}")
    parser.add_argument("--all", action="store_true")
    chosen = parser.parse_args()
    numbers = chosen.numbers or every
    if beyond := [number for number in numbers if number not in every]:
        parser.error(f"there is no mutation {beyond[0]}")
    gone = [it.fault for it in MUTATIONS if (ROOT / it.path).read_text().count(it.old) != 1]
    if gone:
        sys.exit(f"not once in its file any more, so to be written anew: {gone}")
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for number in numbers:
            start, mutation = time.perf_counter(), MUTATIONS[number - 1]
            found = copy.found(mutation, chosen.all)
            seconds = time.perf_counter() - start
            print(f"{number:3} {seconds:5.0f} s  {mutation.path}: {mutation.fault}: {found or 'MISSED'}", flush=True)
            missed += [] if found else [number]
    print(f"{len(numbers) - len(missed)} of {len(numbers)} found; missed: {missed or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
