"""Changes of fragments whose right verdict is known beforehand."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from generator.commands.against import Report, against
from generator.disk.project import Project
from generator.programs.verdicts import DECODING, EVALUATION, HOST, INITIAL, TRAINING

ROOT = Path(__file__).resolve().parents[2]
ENTRY = {"T": TRAINING, "E": EVALUATION, "D": DECODING, "I": INITIAL}
PACKAGES = {
    "model/normalised_top_k": "qwen3_moe_cpu",
    "model/load_balance": "qwen3_moe_cpu",
    "kernels/attend_splash": "llama2_tpu",
    "compile/compile_tpu": "llama2_tpu",
    "train/flags_tpu": "llama2_tpu",
}


@dataclass(frozen=True)
class Mutation:
    """A change of one fragment.

    Attributes:
        expected: letters of entry points and a word of their verdict, such as "TE equal"; every other is the same
            program. H: code on the host changed.
        edits: a text that stands in the fragment, what takes its place everywhere in it, and so on.
    """

    fragment: str
    name: str
    expected: str
    edits: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package that has it."""
        return PACKAGES.get(self.fragment, "llama2_cpu")


_TABLE = {
    "model/rope": [
        ("comment", "", '    point("rotate.scale"', '    # in fp32\n    point("rotate.scale"'),
        ("docstring", "", "Rotates pairs of numbers", "Turns each pair of numbers"),
        ("sign", "TE numbers, D undecided", "first * cos - second * sin", "first * cos + second * sin"),
        ("positions in bf16", "TE numbers, D undecided", "None].astype(jnp.float32)", "None].astype(jnp.bfloat16)"),
    ],
    "kernels/attend_xla": [
        ("local renamed", "", "size", "length", "start", "begin"),
        (
            "lines reordered",
            "",
            '        point("attend.total", total, highest)\n',
            "",
            "        total = weights.sum(axis=-1, keepdims=True)  # divides the context, which is smaller than the scores\n",
            "",
            "stop])\n        blocks",
            'stop])\n        total = weights.sum(axis=-1, keepdims=True)\n        point("attend.total", total, highest)\n        blocks',
        ),
        ("negated twice", "TE equal", "jnp.exp(scores - highest)", "jnp.exp(-(highest - scores))"),
        ("mask that underflows too", "TE equal", "-1e30", "-1e9"),
        (
            "gradient that cancels",
            "T equal, E equal/same",
            "jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))",
            "scores.max(axis=-1, keepdims=True)",
        ),
        ("constant", "TE numbers", "q.shape[-1] ** -0.5", "q.shape[-1] ** -0.4"),
        ("mask off by one", "TE numbers", "visible = jnp.arange(stop) <= jnp", "visible = jnp.arange(stop) < jnp"),
        ("arguments exchanged", "TE numbers", "where(visible, scores, -1e30)", "where(visible, -1e30, scores)"),
        ("gradient stopped", "T numbers, E equal/same", 'q, k, v), "', 'q, k, jax.lax.stop_gradient(v)), "'),
    ],
    "model/block": [
        ("parentheses", "", "x = shard(x + h,", "x = shard((x + h),"),
        ("sum commuted", "TE equal, D undecided", "x = shard(x + h,", "x = shard(h + x,"),
    ],
    "model/attention": [
        (
            "lines whose gradients are summed, reordered",
            "T equal/same",
            "q = self.query(x)  # [B, T, N, ",
            "k = self.key(x)  # [B, T, K, ",
            "k = self.key(x)  # [B, T, K, H]\n            v",
            "q = self.query(x)  # [B, T, N, H]\n            v",
        ),
        ("dead line", "", "y = self.out(context)", "total = context.sum()\n        y = self.out(context)"),
        ("name for remat", "TE equal, D undecided", 'checkpoint_name(y, "out")', 'checkpoint_name(y, "result")'),
        ("checkpoint name", "H", "self_attn.q_proj", "self_attn.query_proj"),
        ("layout in checkpoints", "H", "d n h -> (n h) d", "d n h -> (h n) d"),
    ],
    "model/rms_norm": [
        (
            "name for a part",
            "",
            "y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + ",
            "mean = jnp.mean(y * y, axis=-1, keepdims=True)\n        y = y * jax.lax.rsqrt(mean + ",
        ),
        ("product commuted", "TE equal, D undecided", "y = y * self.scale", "y = self.scale * y"),
        ("dropped cast", "TE numbers, D undecided", "y = x.astype(jnp.float32)", "y = x"),
        ("axis", "TE numbers, D undecided", "jnp.mean(y * y, axis=-1", "jnp.mean(y * y, axis=-2"),
        ("default of the norm", "TE numbers, D undecided, H", "float = 1e-5", "float = 1e-4"),
    ],
    "tests/test_rope": [
        ("a test", "", "atol=0.03", "atol=0.04"),
    ],
    "model/swiglu": [
        (
            "doubled by a sum",
            "TE equal, D undecided",
            "jax.nn.silu(gate) * ",
            "0.5 * (jax.nn.silu(gate) + jax.nn.silu(gate)) * ",
        ),
        (
            "activation written out",
            "TE equal, D undecided",
            "jax.nn.silu(",
            "gate * jax.nn.sigmoid(",
            "import jax\n",
            "import jax\n",
        ),
        ("setting of config.json", "H", '"hidden_act", "silu"', '"hidden_act", "swish"'),
        ("parameter renamed", "TEDI parameters, H", "self.gate", "self.gates", "mlp.gate.kernel", "mlp.gates.kernel"),
        ("axes of a parameter", "TE layout, H", 'F, D), ("mlp", "embed")', 'F, D), ("mlp", "residual")'),
        ("constraint on an activation", "TE layout", 'batch", "sequence", "mlp")', 'batch", "sequence", "residual")'),
    ],
    "parallel/remat": [
        ("what remat full keeps", "T equal, H", "policies.nothing_saveable", "policies.everything_saveable"),
        ("what a policy keeps", "H", '"out", "gate", "up"', '"out", "up"'),
    ],
    "pages/pages": [
        ("padding seen later", "D undecided, H", "2**30", "2**29"),
        ("mask of decoding off by one", "D undecided", "visible = distance >= 0", "visible = distance > 0"),
        ("slot of a page", "D undecided", "positions % size", "(positions + 1) % size"),
    ],
    "train/step": [
        ("evaluation in other parts", "E equal", "batch_size // model.config.accumulation\n", "batch_size\n"),
        ("donated state", "H", "donate_argnums=0, ", ""),
    ],
    "engine/steps": [
        ("last token", "D undecided", "jnp.maximum(step.counts - 1, 0)", "(jnp.maximum(step.counts, 1) - 1)"),
    ],
    "model/embedding": [
        ("dropped accumulation in fp32", "TE numbers, D undecided", 'kernel, "', 'kernel).astype("'),
    ],
    "model/linear": [
        ("rule of a gradient", "T numbers", "return dx, jnp.einsum", "return 2 * dx, jnp.einsum"),
        ("initial spread", "I numbers, H", "std * jax.random.normal", "0.5 * std * jax.random.normal"),
        ("default", "I numbers, H", "init_std: float = 0.02", "init_std: float = 0.01"),
    ],
    "model/untied_head": [
        ("initial distribution", "I numbers, H", "jax.random.normal", "jax.random.uniform"),
        (
            "new parameter",
            "T parameters/layout, E parameters/layout/same, D parameters/same, I parameters, H",
            "self.head = ",
            'self.extra = nnx.Param(jnp.zeros(D), axes=("norm",))\n    self.head = ',
            "import jax\n",
            "import jax\nimport jax.numpy as jnp\n",
        ),
    ],
    "train/adamw": [
        ("moments exchanged", "T numbers", "optax.adamw(rate, b1, b2,", "optax.adamw(rate, b2, b1,"),
        ("dtype of moments", "TI parameters", "mu_dtype=config.moments_dtype, ", ""),
        ("bound of a norm", "T numbers", "config.max_gradient_norm", "1.0"),
    ],
    "train/decays": [
        ("what decays", "T numbers", "len(p.axes) > 1", "len(p.axes) > 2"),
    ],
    "train/cosine": [
        ("schedule", "T numbers", "config.final_ratio * peak)(done + 1)", "config.final_ratio * peak)(done)"),
        ("rate late in a run", "T numbers", "config.final_ratio * peak", "0.5 * config.final_ratio * peak"),
        ("share of the steps", "T numbers", "math.ceil(config.warmup_ratio", "math.floor(config.warmup_ratio"),
    ],
    "train/loss": [
        ("weights of targets", "TE numbers", 'jnp.sum(log_likelihood * batch["weights"])', "jnp.sum(log_likelihood)"),
        ("chunk of logits", "TE numbers", "chunks * size - B * T)\n", "chunks * size - B * T)\n    x = x + 1\n"),
    ],
    "train/z_loss": [
        ("z-loss, off in presets", "T numbers, E equal/same", "log_normalizer**2", "log_normalizer**4"),
    ],
    "engine/sampling": [
        (
            "penalty of a draw",
            "D undecided",
            "logits - metadata.presence_penalty",
            "logits + metadata.presence_penalty",
        ),
        ("penalty of what is there often", "D undecided", "None] * added", "None] * (added > 0)"),
        ("penalty that is forgotten", "D undecided", "metadata.repetition_penalty - 1", "metadata.presence_penalty"),
    ],
    "model/normalised_top_k": [
        (
            "weights of experts",
            "TE numbers, D undecided",
            "weights.sum(axis=-1, keepdims=True)",
            "(weights.sum(axis=-1, keepdims=True) + 0.01)",
        ),
    ],
    "model/load_balance": [
        ("balance of experts", "T numbers, E numbers/equal/same, H", "** 2\n", "** 3\n"),
    ],
    "kernels/attend_splash": [
        ("mask of a Pallas kernel", "TE numbers", "T + padding, T + padding))", "T + padding, T + padding), -1)"),
        ("scale before a Pallas kernel", "TE numbers", "k * H**-0.5", "k * H**-0.4"),
        ("only the largest", "TE undecided", "math.gcd(T + padding, 1024)  #", "math.gcd(T + padding, 512)  #"),
        ("kind of machine", "H", 'interpret=platform != "tpu"', "interpret=True"),
    ],
    "parallel/rules": [
        ("rule of an axis", "TE layout, H", '"mlp": ("tensor",)', '"mlp": ()'),
    ],
    "data/batches": [
        ("default of a size", "TE interface, H", "batch_size: int = 8", "batch_size: int = 16"),
        ("what a batch is to be divided by", "H", "parts = config.accumulation * math.prod", "parts = math.prod"),
    ],
    "compile/compile_tpu": [
        ("default of a flag", "H", '"v5p:8x8x4"  # chip', '"v5p:4x4x4"  # chip'),
    ],
    "train/monitor": [
        ("code on the host", "H", "/ 60\n", "/ 30\n"),
    ],
    "train/flags_tpu": [
        ("flags of the compiler", "H", "setdefault(", "pop("),
    ],
    "engine/engine": [
        ("slots of an engine", "H", "self.free_slots = list(range(settings.max_sequences))", "self.free_slots = []"),
    ],
    "pages/pool": [
        ("pages to give", "H", "range(1, pages)", "range(pages)"),
    ],
    "engine/speculation": [
        ("bound of a flag", "H", 'bounds["draft_tokens"] = 0, 64', 'bounds["draft_tokens"] = 0, 0'),
    ],
    "parallel/parallel": [
        ("order of devices", "H", "across = math.gcd(data, slices),", "across = 1,"),
        ("default of an argument", "H", "fsdp: int = -1, tensor", "fsdp: int = 1, tensor"),
    ],
    "engine/device": [
        ("steps of an engine", "H", "{max(chunk // divisor, 1) ", "{max(chunk // divisor, 1) + 1 "),
    ],
    "train/loop": [
        (
            "statements of another block",
            "H",
            "checkpoints.save(step, checkpoint_items(state), data)\n                        ",
            "pass\n                    checkpoints.save(step, checkpoint_items(state), data)\n                    ",
        ),
    ],
    "engine/request": [
        ("comparison of objects", "H", "@dataclasses.dataclass(eq=False)", "@dataclasses.dataclass"),
    ],
}
MUTATIONS = [
    Mutation(fragment, name, expected, tuple(edits))
    for fragment, rows in _TABLE.items()
    for name, expected, *edits in rows
]


def workplace(folder: Path, package: str) -> Path:
    """A git repository with the library and one package, as they are here."""
    architecture, _, target = package.rpartition("_")
    for name in ("fragments", "templates", "targets"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "gen.toml").write_text("")
    generated = folder / "generated"
    generated.mkdir()
    entry = f'[[package]]\narchitecture = "{architecture}"\ntarget = "{target}"\nparts = ["all"]\n'
    (generated / "packages.toml").write_text(entry)
    from generator.weaver import weave

    woven = weave(architecture, target, project(folder).library(), parts=("all",))
    for path, text in woven.files.items():
        (generated / package / path).parent.mkdir(parents=True, exist_ok=True)
        (generated / package / path).write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "as it is"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)
    return folder


def project(folder: Path) -> Project:
    return Project((folder,), folder, folder / "generated")


def mutate(folder: Path, mutation: Mutation) -> None:
    """Writes a change to a workplace."""
    path = folder / "fragments" / f"{mutation.fragment}.py"
    text = path.read_text()
    for old, new in zip(mutation.edits[::2], mutation.edits[1::2], strict=True):
        assert old in text, f"{mutation.name}: {mutation.fragment} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)
    project(folder).forget_library()


def verdicts(folder: Path) -> Report:
    """What gen diff --against HEAD says of the package of a workplace."""
    _, reports, errors = against(project(folder), "HEAD", lambda _: None)
    assert not errors, errors
    return reports[0]


def wrong(mutation: Mutation, report: Report) -> list[str]:
    """What is not as it should be."""
    right = {entry: ["same"] for entry in ENTRY.values()}
    for words in filter(None, mutation.expected.split(", ")):
        letters, _, verdicts = words.partition(" ")
        right |= {HOST: ["host"]} if letters == "H" else {ENTRY[it]: verdicts.split("/") for it in letters}
    found = {finding.entry: finding for finding in report.findings}
    problems = []
    for entry in {**right, **found}:
        words = found[entry].verdict.split() if entry in found else []
        if set(words).isdisjoint(right.get(entry, ())):
            problems.append(f"{mutation.name}: {entry} is {found.get(entry, 'not named')}, not {right.get(entry)}")
    return problems
