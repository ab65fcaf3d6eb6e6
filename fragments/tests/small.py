"""The small model of the tests: the tiny preset, but narrow, with few layers, short sequences and fp32."""

import dataclasses

from generator.language import setting
from generator.language.roles import PRESETS

SMALL = dataclasses.replace(
    PRESETS["tiny"], dtype="float32", width=64, layers=setting("few_layers"), sequence_length=32, batch_size=4
)
