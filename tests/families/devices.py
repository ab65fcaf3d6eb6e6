"""What a package computes over 8 devices, in a process of its own, as this one may have only one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from flax import nnx

MESHES = (2, 2, 2), (1, 8, 1), (1, 1, 8)
EXPERT_MESHES = (2, 1, 2, 2), (1, 2, 4, 1), (1, 4, 2, 1), (1, 1, 8, 1)  # data, fsdp, expert, tensor


def expert_mesh(package: SimpleNamespace, data: int, fsdp: int, expert: int, tensor: int) -> jax.sharding.Mesh:
    return package.parallel.make_mesh(data, fsdp, tensor, expert=expert)


def bound_of(package: SimpleNamespace) -> float:
    """How far the arrays of three optimizer steps may be from those of one device, in parts of their largest numbers.

    Gemma's scales of norms and gpt-oss's sinks start at zero: they are nothing but sums of gradients, whose terms cancel.
    In fp32 they differ by up to 4e-6; those of Gemma in fp64 by 2e-15.
    """
    return 1e-5 if package.model.__package__.startswith(("gemma", "gpt_oss")) else 1e-6


def on_eight_devices(compare: Callable[[SimpleNamespace], None], package: SimpleNamespace) -> list[str]:
    """The lines that a function of a test's module prints of a package.

    Args:
        compare: takes the package, as `parity.load_package` gives it, and fails where it is wrong.
    """
    folder = str(Path(package.model.__file__).parent)
    program = (
        f"import pathlib; from families import parity; from {compare.__module__} import {compare.__name__}; "
        f"{compare.__name__}(parity.load_package(pathlib.Path({folder!r})))"
    )
    environment = {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def compare_with_one(
    package: SimpleNamespace, config: Any, kernel_of: Callable[[Any], nnx.Param], **inputs: np.ndarray
) -> None:
    """Each mesh gives the mean square of the logits and its gradient that one device gives.

    Args:
        kernel_of: a parameter of the model, which is to be split over the axes fsdp and tensor.
        inputs: of the model, besides 8 rows of 16 tokens.
    """
    model, tokens = package.model.Decoder(config, nnx.Rngs(0)), np.arange(8 * 16).reshape(8, 16) % 32
    mean_square = jax.jit(jax.value_and_grad(lambda model, tokens: (model(tokens, **inputs) ** 2).mean()))
    expected = jax.tree.leaves(mean_square(model, tokens))
    for sizes in MESHES:
        mesh = package.parallel.make_mesh(*sizes)
        with jax.set_mesh(mesh):
            abstract = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
            sharded = jax.device_put(model, jax.tree.map(lambda x: x.sharding, abstract))
            kernel = kernel_of(sharded)[...]
            assert kernel.size == kernel.addressable_shards[0].data.size * sizes[1] * sizes[2]
            actual = mean_square(sharded, tokens)
        for ours, theirs in zip(jax.tree.leaves(actual), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
        print("same on", sizes)
