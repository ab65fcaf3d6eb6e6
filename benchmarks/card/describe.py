"""Writes models.json of a prepared folder: the numbers of each model, so that the peer needs neither package nor JAX.

python -m card.describe DIR, with the packages of DIR on the path
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from .measurements import PACKAGES, SIZES, Sizes


def describe(sizes: Sizes, small: bool) -> dict[str, Any]:
    """Returns the Config, that of transformers, FLOPs of a token, and bytes of a token in the KV cache."""
    package = f"{PACKAGES[sizes.folder][0]}_gpu"
    config_, monitor, files = (importlib.import_module(f"{package}.{x}") for x in ("config", "monitor", "huggingface"))
    preset = config_.PRESETS["tiny" if small else sizes.preset]
    config = dataclasses.replace(preset, **(sizes.small if small else sizes.config))
    work = sizes.small_work if small else sizes.work
    hf = {name: value for name, value, _ in files.hf_structure(config) if value is not None}
    hf |= {name: getattr(config, field) for name, field in files.hf_sizes()}
    T = config.sequence_length
    short = dataclasses.replace(config, sequence_length=T // work.get("documents", 1))
    flops = {"full": monitor.flops_per_token(config, False), "causal": monitor.flops_per_token(config, True)}
    flops["documents"] = monitor.flops_per_token(short, True)
    prompt = dataclasses.replace(config, sequence_length=work.get("prompt", T))
    for name, causal in ("full", False), ("causal", True):  # forward alone; the head is for last tokens alone
        head = 6 * config.width * config.vocab_size
        flops[f"prefill_{name}"] = (monitor.flops_per_token(prompt, causal) - head) / 3
    cache_bytes = 2 * 2 * config.layers * config.kv_heads * config.head_size
    return {"config": dataclasses.asdict(config), "hf": hf, "flops": flops, "cache_bytes": cache_bytes}


def main(folder: Path) -> None:
    models = {
        size: {name: describe(sizes, size == "small") for name, sizes in SIZES.items()} for size in ("real", "small")
    }
    (folder / "models.json").write_text(json.dumps(models, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
