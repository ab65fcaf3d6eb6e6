"""The other side: transformers' models on torch, with the fastest attention and torch.compile. It needs no JAX."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .measurements import Task, repeat, resident_bytes

BACKENDS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
BF16 = torch.bfloat16


def device_of(task: Task) -> str:
    if not task.small and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    torch.set_float32_matmul_precision("high")
    return "cpu" if task.small else "cuda"


def compiled(task: Task, function: Callable) -> Callable:
    """Compiles by inductor; on a CPU, where that takes long, by its first stages alone."""
    return torch.compile(function, backend="aot_eager" if task.small else "inductor")


def wait(_: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gib() -> float:
    return (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else resident_bytes()) / 2**30


def peak(task: Task) -> None:
    device, size, calls = device_of(task), task.work["size"], 1 if task.small else 10
    x, y = (torch.randn(size, size, device=device, dtype=BF16) for _ in range(2))
    flops = {"full": 2 * size**3}
    task.record("product in bfloat16", repeat(lambda: x @ y, wait, task.repetitions, calls), flops=flops)
    source = torch.zeros(task.work["copy"] // 4, device=device)
    target = torch.empty_like(source)
    times = repeat(lambda: target.copy_(source), wait, task.repetitions, calls)
    task.record("copy", times, bytes=2 * source.nbytes)
    one = torch.ones((), device=device)
    a, b = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).t().contiguous().t()  # it wants columns
    product = functools.partial(torch._scaled_mm, a, b, one, one, out_dtype=BF16, use_fast_accum=True)
    task.record("product in float8_e4m3fn", repeat(product, wait, task.repetitions, calls), flops=flops)


def fastest_backend(task: Task, config: dict[str, Any], device: str) -> str:
    """Returns the kernel of scaled_dot_product_attention that is fastest at these sizes, and records each."""
    heads, size = config["heads"], config["head_size"]
    shape = config["batch_size"], heads, config["sequence_length"], size
    q, k, v = (torch.randn(shape, device=device, dtype=BF16, requires_grad=True) for _ in range(3))
    medians = {}
    for name, backend in BACKENDS.items():
        if name == "math" and medians:
            break  # it has all scores in memory
        try:
            with sdpa_kernel(backend):

                def both() -> None:
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    torch.autograd.grad(y, (q, k, v), q)

                times = repeat(both, wait, 3)
        except RuntimeError:
            continue  # not for this device
        medians[name] = sorted(times)[1]
        flops = {"causal": 3.5 * 2 * q.numel() * shape[2]}  # five products back for two forward
        task.record(f"attention, {name}", times, flops=flops)
    return min(medians, key=medians.__getitem__)


def register_attention(task: Task, arrays: dict[str, Any], device: str) -> str:
    """Makes "own" an attn_implementation of transformers, for which it builds no mask: returns what it is.

    With one document a row, the fastest kernel of scaled_dot_product_attention, which needs no mask; else
    flex_attention with a mask of blocks, which passes over those of other documents.
    """
    from transformers import AttentionInterface

    packed = task.measurement.packed
    documents = torch.tensor(arrays["segment_ids"]).to(device)
    B, T = documents.shape

    def visible(b: Any, h: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (documents[b, query] == documents[b, key])

    if not packed:
        name = fastest_backend(task, task.model["config"], device)

        def attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **_: Any) -> tuple[Any, None]:
            with sdpa_kernel(BACKENDS[name]):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return y.transpose(1, 2).contiguous(), None
    elif device == "cuda":
        name, mask_of_blocks = "flex_attention", create_block_mask(visible, B, None, T, T, device=device)

        def attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **_: Any) -> tuple[Any, None]:
            y = flex_attention(q, k, v, block_mask=mask_of_blocks, enable_gqa=True)
            return y.transpose(1, 2).contiguous(), None
    else:  # where flex_attention has no gradient
        same = documents[:, None, :, None] == documents[:, None, None, :]
        name, allowed = "a mask", same & torch.ones(T, T, dtype=torch.bool).tril()

        def attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **_: Any) -> tuple[Any, None]:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)
            return y.transpose(1, 2).contiguous(), None

    AttentionInterface.register("own", attend)
    return name


def model_of(task: Task, device: str, dtype: Any, attention: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    hf = dict(task.model["hf"])
    config = AutoConfig.for_model(hf.pop("model_type"), **hf, attn_implementation=attention)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def train(task: Task, change: Callable[[Any], None] = lambda model: None) -> None:
    """Times steps with AdamW in fp32, products in bf16, all through torch.compile.

    Gradients are summed and clipped as ours are. Where memory is too little, layers are computed twice.
    """
    device, arrays = device_of(task), task.batch()
    attention = register_attention(task, arrays, device)
    model = model_of(task, device, torch.float32, "own").train()
    change(model)
    fused = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    tokens = torch.tensor(arrays["tokens"]).long().to(device)
    inputs, targets, positions = tokens[:, :-1], tokens[:, 1:], torch.tensor(arrays["positions"]).long().to(device)

    @functools.partial(compiled, task)
    def loss_of(inputs: Any, targets: Any, positions: Any) -> Any:
        with torch.autocast(device, BF16):
            logits = model(inputs, position_ids=positions, use_cache=False).logits
            return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def run() -> None:
        loss = loss_of(inputs, targets, positions)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())  # waits

    losses: list[float] = []
    start = time.perf_counter()
    try:
        run()
    except torch.OutOfMemoryError:
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        attention += ", layers computed twice"
        run()
    compile_seconds = time.perf_counter() - start
    times = repeat(run, wait, task.repetitions)
    values = {"tokens": targets.numel(), "flops": task.step_flops(), "first_loss": losses[0], "note": attention}
    task.record("step", times, **values, compile_seconds=compile_seconds, peak_gib=peak_gib())


def train_fp8(task: Task) -> None:
    """The same, with products of linear maps in fp8 by torchao's recipe of a scale for each row."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def change(model: Any) -> None:
        config = Float8LinearConfig(emulate=True) if task.small else Float8LinearConfig.from_recipe_name("rowwise")
        convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: "lm_head" not in name)

    train(task, change)


def serve(task: Task) -> None:
    """Times generate with its static cache, whose decoding it compiles on GPUs: prefill, and a token of all rows."""
    device, work = device_of(task), task.work
    model = model_of(task, device, BF16, "sdpa").eval()
    vocabulary = task.model["config"]["vocab_size"]

    def generate(rows: int, count: int) -> None:
        prompts = torch.randint(3, vocabulary, (rows, work["prompt"]), device=device)
        settings = dict(max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        longest = dict(cache_implementation="static", attention_mask=torch.ones_like(prompts))
        model.generate(prompts, **settings, **longest)

    times = repeat(lambda: generate(work["prefills"], 1), wait, 3)
    tokens = work["prefills"] * work["prompt"]
    flops = {name: tokens * task.model["flops"][f"prefill_{name}"] for name in ("full", "causal")}
    task.record("prefill", times, tokens=tokens, flops=flops, peak_gib=peak_gib())
    rows, count = work["sequences"], work["answer"]
    start = time.perf_counter()
    generate(rows, count)
    compile_seconds = time.perf_counter() - start
    first, all_ = (repeat(lambda n=n: generate(rows, n), wait, 3, warm=0) for n in (1, count))
    times = [(b - a) / (count - 1) for a, b in zip(sorted(first), sorted(all_), strict=True)]
    weights = sum(p.nbytes for p in model.parameters())
    cached = rows * (work["prompt"] + count / 2) * task.model["cache_bytes"]
    values = {"tokens": rows, "bytes": weights + cached, "compile_seconds": compile_seconds}
    task.record("decode", times, **values, peak_gib=peak_gib())


def experts(task: Task) -> None:
    device, config = device_of(task), task.model["config"]
    E, D, W = config["experts"], config["width"], config["expert_width"]
    sizes = torch.tensor(task.expert_rows()).to(device)
    rows, ends = int(sizes.sum()), sizes.cumsum(0).to(torch.int32)
    product = getattr(F, "grouped_mm", None) or torch._grouped_mm

    def normal(*shape: int) -> Any:
        return (torch.randn(shape, device=device) * shape[-2] ** -0.5).to(BF16).requires_grad_()

    x, gate, up, down = normal(rows, D), normal(E, D, W), normal(E, D, W), normal(E, W, D)

    def forward(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return product(F.silu(product(x, gate, offs=ends)) * product(x, up, offs=ends), down, offs=ends)

    for way, function in ("as it is", forward), ("compile", compiled(task, forward)):

        def both(function: Callable = function) -> None:
            torch.autograd.grad(function(x, gate, up, down), (x, gate, up, down), x)

        start = time.perf_counter()
        both()
        compile_seconds = time.perf_counter() - start
        times = repeat(both, wait, task.repetitions)
        values = {"flops": {"full": 3 * 3 * 2 * rows * D * W}, "tokens": task.work["tokens"], "note": way}
        task.record("forward and backward", times, **values, compile_seconds=compile_seconds, peak_gib=peak_gib())
