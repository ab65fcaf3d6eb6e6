"""Changes of fragments whose right verdict is known beforehand."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from generator.commands.against import Report, against
from generator.disk.project import Project
from generator.programs.verdicts import (
    CHECKPOINTS,
    DECODING,
    EQUAL_VALUES,
    EVALUATION,
    HOST,
    INITIAL,
    INTERFACE,
    OTHER_INTERFACE,
    OTHER_LAYOUT,
    OTHER_NUMBERS,
    OTHER_PARAMETERS,
    SAME_PROGRAM,
    SAME_TEXT,
    TRAINING,
    UNDECIDED,
)

ROOT = Path(__file__).resolve().parents[2]
T, E, D, I, P, C, H = TRAINING, EVALUATION, DECODING, INITIAL, CHECKPOINTS, INTERFACE, HOST  # noqa: E741
SAME = (SAME_TEXT, SAME_PROGRAM)


@dataclass(frozen=True)
class Mutation:
    """A change of one fragment.

    Attributes:
        edits: pairs of a text that stands in the fragment, and what takes its place everywhere in it.
        expected: entry point -> the verdicts that are right; every other entry point is the same program.
        package: the package that has it.
        slow: whether results have to be computed.
    """

    name: str
    fragment: str
    edits: list[tuple[str, str]]
    expected: dict[str, tuple[str, ...]] = field(default_factory=dict)
    package: str = "llama2_cpu"

    @property
    def slow(self) -> bool:
        return any({EQUAL_VALUES, OTHER_NUMBERS} & set(verdicts) for verdicts in self.expected.values())


def every(entries: list[str], *verdicts: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(entries, verdicts)


EQUAL, OTHER = EQUAL_VALUES, OTHER_NUMBERS
MUTATIONS = [
    # what is the same program
    Mutation("comment", "model/rope", [('    point("rotate.scale"', '    # in fp32\n    point("rotate.scale"')]),
    Mutation("docstring", "model/rope", [("Rotates pairs of numbers", "Turns each pair of numbers")]),
    Mutation("local renamed", "kernels/attend_xla", [("size", "length"), ("start", "begin")]),
    Mutation("parentheses", "model/block", [("x = shard(x + h,", "x = shard((x + h),")]),
    Mutation(
        "lines reordered",
        "kernels/attend_xla",
        [
            ('        point("attend.total", total, highest)\n', ""),
            (
                "        total = weights.sum(axis=-1, keepdims=True)  # divides the context, which is smaller than the scores\n",
                "",
            ),
            (
                ":stop])\n        blocks",
                ':stop])\n        total = weights.sum(axis=-1, keepdims=True)\n        point("attend.total", total, highest)\n        blocks',
            ),
        ],
    ),
    Mutation(
        "lines whose gradients are summed, reordered",
        "model/attention",
        [
            ("q = self.query(x)  # [B, T, N, H]\n", "k = self.key(x)  # [B, T, K, H]\n"),
            ("k = self.key(x)  # [B, T, K, H]\n            v", "q = self.query(x)  # [B, T, N, H]\n            v"),
        ],
        every([T], EQUAL, *SAME),
    ),
    Mutation(
        "dead line",
        "model/attention",
        [
            ("y = self.out(context)", "total = context.sum()\n        y = self.out(context)"),
        ],
    ),
    Mutation(
        "name for a part",
        "model/rms_norm",
        [
            (
                "y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)",
                "mean = jnp.mean(y * y, axis=-1, keepdims=True)\n        y = y * jax.lax.rsqrt(mean + self.epsilon)",
            )
        ],
    ),
    Mutation("a test", "tests/test_rope", [("atol=0.03", "atol=0.04")]),
    # equal values
    Mutation("sum commuted", "model/block", [("x = shard(x + h,", "x = shard(h + x,")], every([T, E, D], EQUAL)),
    Mutation(
        "product commuted", "model/rms_norm", [("y = y * self.scale", "y = self.scale * y")], every([T, E, D], EQUAL)
    ),
    Mutation(
        "negated twice",
        "kernels/attend_xla",
        [("jnp.exp(scores - highest)", "jnp.exp(-(highest - scores))")],
        every([T, E], EQUAL),
    ),
    Mutation(
        "doubled by a sum",
        "model/swiglu",
        [("h = jax.nn.silu(gate) * up", "h = 0.5 * (jax.nn.silu(gate) + jax.nn.silu(gate)) * up")],
        every([T, E, D], EQUAL),
    ),
    Mutation(
        "activation written out",
        "model/swiglu",
        [("jax.nn.silu(gate)", "gate * jax.nn.sigmoid(gate)"), ("import jax\n", "import jax\n")],
        every([T, E, D], EQUAL),
    ),
    Mutation("mask that underflows too", "kernels/attend_xla", [("-1e30", "-1e9")], every([T, E], EQUAL)),
    Mutation(
        "gradient that cancels",
        "kernels/attend_xla",
        [("jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))", "scores.max(axis=-1, keepdims=True)")],
        {T: (EQUAL,), E: (EQUAL, *SAME)},
    ),
    Mutation(
        "name for remat",
        "model/attention",
        [('checkpoint_name(y, "out")', 'checkpoint_name(y, "result")')],
        every([T, E, D], EQUAL),
    ),
    Mutation(
        "what remat full keeps",
        "parallel/remat",
        [('"full": policies.nothing_saveable', '"full": policies.everything_saveable')],
        every([T], EQUAL),
    ),
    Mutation("padding seen later", "pages/pages", [("2**30", "2**29")], every([D], EQUAL)),
    Mutation(
        "evaluation in other parts",
        "train/step",
        [("size = model.config.batch_size // model.config.accumulation\n", "size = model.config.batch_size\n")],
        every([E], EQUAL),
    ),
    Mutation(
        "last token",
        "engine/steps",
        [("jnp.maximum(step.counts - 1, 0)", "(jnp.maximum(step.counts, 1) - 1)")],
        every([D], EQUAL),
    ),
    # other numbers
    Mutation(
        "sign", "model/rope", [("first * cos - second * sin", "first * cos + second * sin")], every([T, E, D], OTHER)
    ),
    Mutation("constant", "kernels/attend_xla", [("q.shape[-1] ** -0.5", "q.shape[-1] ** -0.4")], every([T, E], OTHER)),
    Mutation(
        "mask off by one",
        "kernels/attend_xla",
        [("visible = jnp.arange(stop) <= jnp", "visible = jnp.arange(stop) < jnp")],
        every([T, E], OTHER),
    ),
    Mutation(
        "mask of decoding off by one",
        "pages/pages",
        [("visible = distance >= 0", "visible = distance > 0")],
        every([D], OTHER),
    ),
    Mutation("slot of a page", "pages/pages", [("positions % size", "(positions + 1) % size")], every([D], OTHER)),
    Mutation("dropped cast", "model/rms_norm", [("y = x.astype(jnp.float32)", "y = x")], every([T, E, D], OTHER)),
    Mutation(
        "dropped accumulation in fp32",
        "model/embedding",
        [('x, kernel, "float32")', 'x, kernel).astype("float32")')],
        every([T, E, D], OTHER),
    ),
    Mutation(
        "axis", "model/rms_norm", [("jnp.mean(y * y, axis=-1", "jnp.mean(y * y, axis=-2")], every([T, E, D], OTHER)
    ),
    Mutation(
        "arguments exchanged",
        "kernels/attend_xla",
        [("jnp.where(visible, scores, -1e30)", "jnp.where(visible, -1e30, scores)")],
        every([T, E], OTHER),
    ),
    Mutation(
        "gradient stopped",
        "kernels/attend_xla",
        [
            (
                'q, k, v = checkpoint_name((q, k, v), "attention")',
                'q, k, v = checkpoint_name((q, k, jax.lax.stop_gradient(v)), "attention")',
            )
        ],
        {T: (OTHER,), E: (EQUAL, *SAME)},
    ),
    Mutation(
        "rule of a gradient",
        "model/linear",
        [("return dx, jnp.einsum", "return 2 * dx, jnp.einsum")],
        every([T], OTHER),
    ),
    Mutation(
        "initial spread",
        "model/linear",
        [("std * jax.random.normal", "0.5 * std * jax.random.normal")],
        every([I], OTHER),
    ),
    Mutation(
        "initial distribution", "model/untied_head", [("jax.random.normal", "jax.random.uniform")], every([I], OTHER)
    ),
    Mutation(
        "moments exchanged",
        "train/adamw",
        [("optax.adamw(rate, b1, b2,", "optax.adamw(rate, b2, b1,")],
        every([T], OTHER),
    ),
    Mutation("what decays", "train/decays", [("len(p.axes) > 1", "len(p.axes) > 2")], every([T], OTHER)),
    Mutation(
        "schedule",
        "train/cosine",
        [("config.final_ratio * peak)(done + 1)", "config.final_ratio * peak)(done)")],
        every([T], OTHER),
    ),
    Mutation(
        "weights of targets",
        "train/loss",
        [('-jnp.sum(log_likelihood * batch["weights"])', "-jnp.sum(log_likelihood)")],
        every([T, E], OTHER),
    ),
    Mutation(
        "z-loss, off in presets",
        "train/z_loss",
        [("log_normalizer**2", "log_normalizer**4")],
        every([T], OTHER) | every([E], EQUAL, *SAME),
    ),
    Mutation(
        "chunk of logits",
        "train/loss",
        [("chunks * size - B * T)\n", "chunks * size - B * T)\n    x = x + 1\n")],
        every([T, E], OTHER),
    ),
    Mutation(
        "penalty of a draw",
        "engine/sampling",
        [("logits - metadata.presence_penalty", "logits + metadata.presence_penalty")],
        every([D], OTHER),
    ),
    Mutation(
        "weights of experts",
        "model/normalised_top_k",
        [("weights.sum(axis=-1, keepdims=True)", "(weights.sum(axis=-1, keepdims=True) + 0.01)")],
        every([T, E, D], OTHER),
        "qwen3_moe_cpu",
    ),
    Mutation(
        "balance of experts",
        "model/load_balance",
        [("** 2\n", "** 3\n")],
        {T: (OTHER,), E: (OTHER, EQUAL, *SAME)},
        "qwen3_moe_cpu",
    ),
    Mutation(
        "mask of a Pallas kernel",
        "kernels/attend_splash",
        [("splash.CausalMask((T + padding, T + padding))", "splash.CausalMask((T + padding, T + padding), -1)")],
        every([T, E], OTHER),
        "llama2_tpu",
    ),
    Mutation(
        "scale before a Pallas kernel",
        "kernels/attend_splash",
        [("k * H**-0.5", "k * H**-0.4")],
        every([T, E], OTHER),
        "llama2_tpu",
    ),
    # other parameters
    Mutation(
        "checkpoint name",
        "model/attention",
        [("self_attn.q_proj", "self_attn.query_proj")],
        every([P], OTHER_PARAMETERS),
    ),
    Mutation(
        "layout in checkpoints",
        "model/attention",
        [("d n h -> (n h) d", "d n h -> (h n) d")],
        every([P], OTHER_PARAMETERS),
    ),
    Mutation(
        "setting of config.json",
        "model/swiglu",
        [('"hidden_act", "silu"', '"hidden_act", "swish"')],
        every([P], OTHER_PARAMETERS),
    ),
    Mutation(
        "parameter renamed",
        "model/swiglu",
        [("self.gate", "self.gates"), ("mlp.gate.kernel", "mlp.gates.kernel")],
        every([T, E, D, I, P], OTHER_PARAMETERS),
    ),
    Mutation(
        "new parameter",
        "model/untied_head",
        [
            ("    self.head = ", '    self.extra = nnx.Param(jnp.zeros(D), axes=("norm",))\n    self.head = '),
            ("import jax\n", "import jax\nimport jax.numpy as jnp\n"),
        ],
        every([T, E, D, I, P], OTHER_PARAMETERS)
        | {
            T: (OTHER_PARAMETERS, OTHER_LAYOUT),
            E: (OTHER_PARAMETERS, OTHER_LAYOUT, *SAME),
            D: (OTHER_PARAMETERS, *SAME),
        },
    ),
    Mutation(
        "dtype of moments", "train/adamw", [("mu_dtype=config.moments_dtype, ", "")], every([T, I, P], OTHER_PARAMETERS)
    ),
    Mutation(
        "rate late in a run",
        "train/cosine",
        [("config.final_ratio * peak", "0.5 * config.final_ratio * peak")],
        every([T], OTHER),
    ),
    Mutation(
        "share of the steps",
        "train/cosine",
        [("math.ceil(config.warmup_ratio", "math.floor(config.warmup_ratio")],
        every([T], OTHER),
    ),
    Mutation(
        "penalty of what is there often",
        "engine/sampling",
        [("metadata.frequency_penalty[:, None] * added", "metadata.frequency_penalty[:, None] * (added > 0)")],
        every([D], OTHER),
    ),
    # other layout
    Mutation(
        "axes of a parameter",
        "model/swiglu",
        [
            (
                'self.down = Linear("BTF,FD->BTD", (F, D), ("mlp", "embed")',
                'self.down = Linear("BTF,FD->BTD", (F, D), ("mlp", "residual")',
            )
        ],
        every([T, E], OTHER_LAYOUT),
    ),
    Mutation(
        "rule of an axis",
        "parallel/rules",
        [('"mlp": ("tensor",)', '"mlp": ()')],
        every([T, E], OTHER_LAYOUT),
    ),
    Mutation(
        "constraint on an activation",
        "model/swiglu",
        [('shard(h, "batch", "sequence", "mlp")', 'shard(h, "batch", "sequence", "residual")')],
        every([T, E], OTHER_LAYOUT),
    ),
    Mutation("donated state", "train/step", [("donate_argnums=0, ", "")], every([T], OTHER_LAYOUT)),
    # other interface
    Mutation(
        "default",
        "model/linear",
        [("init_std: float = 0.02", "init_std: float = 0.01")],
        {I: (OTHER,), C: (OTHER_INTERFACE,)},
    ),
    Mutation(
        "default of the norm",
        "model/rms_norm",
        [("norm_epsilon: float = 1e-5", "norm_epsilon: float = 1e-4")],
        every([T, E, D], OTHER) | {C: (OTHER_INTERFACE,)},
    ),
    Mutation(
        "default of a size",
        "data/batches",
        [("batch_size: int = 8", "batch_size: int = 16")],
        every([T, E, C], OTHER_INTERFACE),
    ),
    Mutation(
        "default of a flag",
        "compile/compile_tpu",
        [('"v5p:8x8x4"  # chip', '"v5p:4x4x4"  # chip')],
        every([C], OTHER_INTERFACE),
        "llama2_tpu",
    ),
    # what is not known
    Mutation("what a policy keeps", "parallel/remat", [('"out", "gate", "up"', '"out", "up"')], every([T], UNDECIDED)),
    Mutation(
        "only the largest",
        "kernels/attend_splash",
        [("math.gcd(T + padding, 1024)  #", "math.gcd(T + padding, 512)  #")],
        {T: (UNDECIDED,), E: (UNDECIDED,)},
        "llama2_tpu",
    ),
    Mutation("code on the host", "train/monitor", [("/ 60\n", "/ 30\n")], every([H], UNDECIDED)),
    # what decides a test that came out one way, reads the machine, or is run to learn what a command takes
    Mutation(
        "what a batch is to be divided by",
        "data/batches",
        [("parts = config.accumulation * math.prod", "parts = math.prod")],
        every([H], UNDECIDED),
    ),
    Mutation(
        "kind of machine",
        "kernels/attend_splash",
        [('interpret=platform != "tpu"', "interpret=True")],
        every([H], UNDECIDED),
        "llama2_tpu",
    ),
    Mutation(
        "flags of the compiler", "train/flags_tpu", [("setdefault(", "pop(")], every([H], UNDECIDED), "llama2_tpu"
    ),
    # settings that are no settings any more
    Mutation("bound of a norm", "train/adamw", [("config.max_gradient_norm", "1.0")], every([T], OTHER)),
    Mutation(
        "positions in bf16",
        "model/rope",
        [("positions[..., None].astype(jnp.float32)", "positions[..., None].astype(jnp.bfloat16)")],
        every([T, E, D], OTHER),
    ),
    Mutation(
        "penalty that is forgotten",
        "engine/sampling",
        [("metadata.repetition_penalty - 1", "metadata.presence_penalty")],
        every([D], OTHER),
    ),
    # what is made before anything is traced, and whose numbers reach no array
    Mutation(
        "slots of an engine",
        "engine/engine",
        [("self.free_slots = list(range(settings.max_sequences))", "self.free_slots = []")],
        every([H], UNDECIDED),
    ),
    Mutation("pages to give", "pages/pool", [("range(1, pages)", "range(pages)")], every([H], UNDECIDED)),
    Mutation(
        "bound of a flag",
        "engine/speculation",
        [('bounds["draft_tokens"] = 0, 64', 'bounds["draft_tokens"] = 0, 0')],
        every([H], UNDECIDED),
    ),
    Mutation(
        "order of devices",
        "parallel/parallel",
        [("across = math.gcd(data, slices),", "across = 1,")],
        every([H], UNDECIDED),
    ),
    Mutation(
        "steps of an engine",
        "engine/device",
        [("{max(chunk // divisor, 1) ", "{max(chunk // divisor, 1) + 1 ")],
        {D: (OTHER_INTERFACE,)},
    ),
    Mutation(
        "statements of another block",
        "train/loop",
        [
            (
                "    checkpoints.save(step, checkpoint_items(state), data)\n",
                "    pass\n" + 20 * " " + "checkpoints.save(step, checkpoint_items(state), data)\n",
            )
        ],
        every([H], UNDECIDED),
    ),
    Mutation(
        "default of an argument",
        "parallel/parallel",
        [("fsdp: int = -1, tensor", "fsdp: int = 1, tensor")],
        every([H], UNDECIDED),
    ),
    Mutation(
        "comparison of objects",
        "engine/request",
        [("@dataclasses.dataclass(eq=False)", "@dataclasses.dataclass")],
        every([H], UNDECIDED),
    ),
]


def workplace(folder: Path, package: str) -> Path:
    """A git repository with the library and one package, as they are here."""
    architecture, _, target = package.rpartition("_")
    for name in ("fragments", "templates", "targets"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "gen.toml").write_text("")
    generated = folder / "generated"
    generated.mkdir()
    (generated / "packages.toml").write_text(f'[[package]]\narchitecture = "{architecture}"\ntarget = "{target}"\n')
    from generator.weaver import weave

    woven = weave(architecture, target, project(folder).library())
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
    for old, new in mutation.edits:
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
    problems = []
    for entry in (T, E, D, I, P, C, H):
        found = [finding for finding in report.findings if finding.entry == entry]
        right = mutation.expected.get(entry, SAME)
        bad = [finding for finding in found if finding.verdict not in right]
        if bad or (not found and entry != H) or (not found and entry in mutation.expected):
            said = ", ".join(f"{it.verdict} ({it.detail} {it.numbers})" for it in found)
            problems.append(f"{mutation.name}: {entry} is {said or 'not named'}, not {' or '.join(right)}")
    return problems
