"""The published presets of every family have as many parameters as their authors say."""

from __future__ import annotations

import jax
import pytest
from flax import nnx

from families import parity
from families.test_parity import FAMILIES, LIBRARY, write
from generator.weave import weave


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters(name, tmp_path):
    family = FAMILIES[name]
    package = parity.load_package(write(weave(family.architecture, "tpu", LIBRARY), tmp_path))
    assert set(package.config.PRESETS) == {"tiny", *family.published}
    for preset, (billions, source) in family.published.items():
        config = package.config.PRESETS[preset]
        model = jax.eval_shape(lambda config=config: package.model.Decoder(config, nnx.Rngs(0)))
        count = sum(x.size for x in jax.tree.leaves(model))
        assert count == pytest.approx(billions * 1e9, abs=0.6e6 if billions < 100 else 0.6e8), f"{preset}: {source}"
