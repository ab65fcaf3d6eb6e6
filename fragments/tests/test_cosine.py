"""The learning rate, by hand."""

import dataclasses

import numpy as np

from generator.language import requires
from generator.language.roles import SMALL, learning_rate

requires("cosine")


def test_learning_rate():
    config = dataclasses.replace(SMALL, steps=110, warmup_ratio=10 / 110, learning_rate=2.0, final_ratio=0.1)
    rates = [float(learning_rate(done, config)) for done in (0, 4, 9, 59, 109, 200)]
    np.testing.assert_allclose(rates, [0.2, 1.0, 2.0, 1.1, 0.2, 0.2], rtol=1e-5)
    assert float(learning_rate(0, dataclasses.replace(config, steps=1))) == 2.0
    # 0.07 * 100 is 7.000000000000001, and the seventh update has the peak
    assert float(learning_rate(6, dataclasses.replace(config, steps=100, warmup_ratio=0.07))) == 2.0
