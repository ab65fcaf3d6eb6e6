"""The part packed_attention: its kernels over many devices, and the families that have them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from families.devices import MESHES, compare_with_one, on_eight_devices
from families.weaving import LIBRARY, woven
from generator.errors import LoomError
from generator.weaver import weave

FILE, PARTS = "packed_attention.py", ("all", "packed_attention")


def compare_documents(package) -> None:
    sizes = dict(vocab_size=32, width=32, layers=1, heads=16, kv_heads=8, head_size=4, mlp_width=32, dtype="float32")
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes)
    segment_ids = np.sort(np.random.default_rng(0).integers(1, 4, (8, 16)), axis=1)
    compare_with_one(package, config, lambda model: model.layers.attention.query.kernel, segment_ids=segment_ids)


@pytest.mark.slow
def test_any_mesh_gives_what_one_device_gives(tmp_path):
    package = woven("llama2", "gpu", tmp_path, parts=PARTS)
    assert (tmp_path / "llama2_gpu" / FILE).exists()
    assert on_eight_devices(compare_documents, package) == [f"same on {sizes}" for sizes in MESHES]


@pytest.mark.parametrize("architecture", ["gemma2", "gpt_oss"])
def test_families_with_scores_of_their_own_are_refused(architecture):
    """Soft caps and sinks are not for these kernels."""
    with pytest.raises(LoomError, match=f"the part packed_attention adds nothing to {architecture} for gpu"):
        weave(architecture, "gpu", LIBRARY, parts=PARTS)
