"""The packages of a family for all targets compute one model: each target's own attention against that of the CPU."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import transformers
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.weaving import fitted, woven
from generator.errors import LoomError


@pytest.mark.parametrize("name", mostly_slow(FAMILIES, "gemma2"))
def test_logits(name, tmp_path):
    """In fp32 on the CPU: Splash is interpreted, and what cuDNN would compute goes to XLA."""
    family = FAMILIES[name]
    case = next(iter(family.cases.values()))
    config = getattr(transformers, family.config)(**family.settings | case.settings, dtype="float32")
    parity.make_reference(getattr(transformers, family.model), config).save_pretrained(tmp_path / "theirs")
    library = fitted(family.architecture, f"{name}_everywhere", tmp_path / "theirs")
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, family.length), dtype=np.int32)
    segment_ids = np.repeat([1, 2], [5, family.length - 5])[None].repeat(2, axis=0).astype(np.int32)
    logits = {}
    for target in "cpu", "tpu", "gpu", "trainium":
        try:
            package = woven(f"{name}_everywhere", target, tmp_path, library)
        except LoomError as error:
            assert target == "gpu" and "excludes" in str(error)  # cuDNN cannot do what the family needs
            continue
        _, model = package.huggingface.load_hf(tmp_path / "theirs")
        logits[target] = jax.jit(model)(tokens, segment_ids=segment_ids)
    for target in logits:
        np.testing.assert_allclose(logits[target], logits["cpu"], atol=1e-4, rtol=0, err_msg=target)
