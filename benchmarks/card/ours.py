"""Our side: packages that `--prepare` wove, on the JAX that is here."""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .measurements import PACKAGES, SIZES, Task, repeat, resident_bytes


def module(task: Task, name: str) -> Any:
    architecture, _ = PACKAGES[task.measurement.folder or SIZES[task.measurement.sizes].folder]
    return importlib.import_module(f"{architecture}_gpu.{name}")


def configured(task: Task) -> Any:
    """Returns the Config, and sets the compiler's flags as the package's own commands do."""
    train = module(task, "train")
    train.set_flags(train.FLAGS)
    if not task.small and jax.devices()[0].platform != "gpu":
        raise SystemExit("JAX sees no GPU: install its plugin, such as jax[cuda13]")
    return module(task, "config").Config(**task.model["config"])


def peak_gib() -> float:
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use", resident_bytes()) / 2**30


def normal(*shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.jit(lambda: jax.random.normal(jax.random.key(sum(shape)), shape, dtype))()


def peak(task: Task) -> None:
    """Times a large product in bf16 and in fp8, and a copy: what a share of this card's own speed is a share of."""
    configured(task)
    size, calls = task.work["size"], 1 if task.small else 10
    x, y = normal(size, size), normal(size, size)
    flops = {"full": 2 * size**3}
    product = jax.jit(lambda x, y: jax.lax.dot(x, y, preferred_element_type=jnp.bfloat16))
    for dtype in jnp.bfloat16, jnp.float8_e4m3fn:
        run = functools.partial(product, x.astype(dtype), y.astype(dtype))
        task.record(
            f"product in {jnp.dtype(dtype).name}",
            repeat(run, jax.block_until_ready, task.repetitions, calls),
            flops=flops,
        )
    whole = jnp.zeros(task.work["copy"] // 4, jnp.float32)
    copy = jax.jit(lambda x: x + 1)
    times = repeat(lambda: copy(whole), jax.block_until_ready, task.repetitions, calls)
    task.record("copy", times, bytes=2 * whole.nbytes)


def train(task: Task) -> None:
    """Times steps of the trainer. With one document a row there are no segment ids, so that attention needs no mask."""
    config, module_ = configured(task), module(task, "trainer")
    arrays = task.batch()
    batch = {
        "tokens": arrays["tokens"][:, :-1],
        "targets": arrays["tokens"][:, 1:],
        "positions": arrays["positions"],
        "segment_ids": arrays["segment_ids"] if task.measurement.packed else None,
        "weights": np.ones(arrays["positions"].shape, np.float32),
    }
    mesh = module(task, "parallel").make_mesh()
    with jax.set_mesh(mesh):
        state, batch = module_.create_state(config, mesh), jax.device_put(batch)
        start = time.perf_counter()
        step = module_.compile_step(state, batch, config)
        compile_seconds = time.perf_counter() - start
    losses = []

    def run() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        losses.append(float(metrics["train/loss"]))  # waits

    times = repeat(run, lambda _: None, task.repetitions)
    values = {"tokens": batch["tokens"].size, "flops": task.step_flops(), "first_loss": losses[0]}
    task.record("step", times, **values, compile_seconds=compile_seconds, peak_gib=peak_gib())


def serve(task: Task) -> None:
    """Times the engine: prefill of some prompts, then steps in which every sequence decodes a token."""
    config, engines = configured(task), module(task, "engine")
    work, rng = task.work, np.random.default_rng(0)

    @jax.jit
    def create() -> Any:
        model = module(task, "model").Decoder(config, nnx.Rngs(0))
        return jax.tree.map(lambda x: x.astype(config.dtype), model)

    longest = work["prompt"] + work["answer"]
    settings = engines.EngineSettings(max_sequences=work["sequences"], max_length=longest, chunk=work["prompt"])
    model = create()
    weights = sum(x.nbytes for x in jax.tree.leaves(model))
    engine = engines.Engine(config, model, set(), settings)
    del model
    sampling = functools.partial(engines.SamplingParams, ignore_eos=True)

    def prompts(count: int) -> list[list[int]]:  # that no page has
        return rng.integers(3, config.vocab_size, (count, work["prompt"])).tolist()

    start = time.perf_counter()
    engine.generate(prompts(2), sampling(max_tokens=2))
    compile_seconds = time.perf_counter() - start
    once = sampling(max_tokens=1)
    times = repeat(lambda: engine.generate(prompts(work["prefills"]), once), lambda _: None, 3)
    tokens = work["prefills"] * work["prompt"]
    flops = {name: tokens * task.model["flops"][f"prefill_{name}"] for name in ("full", "causal")}
    task.record("prefill", times, tokens=tokens, flops=flops, compile_seconds=compile_seconds, peak_gib=peak_gib())

    requests = [engine.add(prompt, sampling(max_tokens=work["answer"])) for prompt in prompts(work["sequences"])]
    while not all(len(request.tokens) >= 2 for request in requests):
        engine.step()
    times = []
    while all(request.finish is None for request in requests):
        start = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - start)
    cached = work["sequences"] * (work["prompt"] + work["answer"] / 2) * task.model["cache_bytes"]
    values = {"tokens": work["sequences"], "bytes": weights + cached, "peak_gib": peak_gib()}
    task.record("decode", times[2:-1], **values)


def experts(task: Task) -> None:
    """Times the products of a layer's experts, forward and backward, and compares some rows with plain products."""
    config = configured(task)
    product = module(task, "model").grouped_product
    E, D, F = config.experts, config.width, config.expert_width
    sizes = task.expert_rows()
    rows = int(sizes.sum())
    x, gate, up, down = normal(rows, D), normal(E, D, F), normal(E, D, F), normal(E, F, D)
    gate, up, down = gate * D**-0.5, up * D**-0.5, down * F**-0.5
    groups = jnp.asarray(sizes)

    def forward(x, gate, up, down):
        return product(jax.nn.silu(product(x, gate, groups)) * product(x, up, groups), down, groups)

    @jax.jit
    def both(x, gate, up, down, dy):
        y, backward = jax.vjp(forward, x, gate, up, down)
        return y, backward(dy)

    start = time.perf_counter()
    y, _ = jax.block_until_ready(both(x, gate, up, down, x))
    compile_seconds = time.perf_counter() - start
    rows_of_first = x[: sizes[0]].astype(jnp.float32)
    g, u, d = (kernel[0].astype(jnp.float32) for kernel in (gate, up, down))
    wanted = (jax.nn.silu(rows_of_first @ g) * (rows_of_first @ u)) @ d
    error = float(jnp.linalg.norm(y[: sizes[0]] - wanted) / jnp.linalg.norm(wanted))
    times = repeat(lambda: both(x, gate, up, down, x), jax.block_until_ready, task.repetitions)
    values = {"flops": {"full": 3 * 3 * 2 * rows * D * F}, "tokens": task.work["tokens"], "error": error}
    task.record("forward and backward", times, **values, compile_seconds=compile_seconds, peak_gib=peak_gib())
