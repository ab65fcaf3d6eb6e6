"""Experts published in MXFP4, dequantized when read: blocks of 32 4-bit numbers, and their scales.

Source: Open Compute Project 2023, OCP Microscaling Formats Specification 1.0, section 5.
"""

from typing import Any

import numpy as np

from generator.language import splice

MXFP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by the lower three bits; the fourth is the sign


class Mxfp4:
    """A tensor [..., B * 32, R], read from bytes: blocks [..., R, B, 16] and scales [..., R, B]."""

    def __init__(self, blocks: Any, scales: Any):
        self.blocks, self.scales = blocks, scales

    def get_dtype(self) -> str:
        return "F32"

    def get_shape(self) -> list[int]:
        *rest, rows, blocks, half = self.blocks.get_shape()
        return [*rest, blocks * 2 * half, rows]

    def __getitem__(self, everything) -> np.ndarray:
        blocks = self.blocks[...]
        scales = self.scales[...].astype(np.int32)
        values = np.array([*MXFP4_VALUES, *(-value for value in MXFP4_VALUES)], np.float32)
        numbers = np.empty((*blocks.shape, 2), np.float32)  # [..., R, B, 16, 2]: low half of a byte first
        numbers[..., 0], numbers[..., 1] = values[blocks & 15], values[blocks >> 4]
        np.ldexp(numbers, scales[..., None, None] - 127, out=numbers)
        return np.swapaxes(numbers.reshape(*blocks.shape[:-2], -1), -1, -2)


@splice("hf.complete")
def _(hf):
    if hf.get("quantization_config", {}).get("quant_method") == "mxfp4":
        del hf["quantization_config"]  # dequantized when read


@splice("hf.opened")
def _(tensors):
    for name in [name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks")]:
        blocks = tensors[f"{name}_blocks"]
        scales = tensors.get(f"{name}_scales")
        if (
            scales
            and blocks.get_dtype() == scales.get_dtype() == "U8"
            and blocks.get_shape()[:-1] == scales.get_shape()
        ):
            del tensors[f"{name}_blocks"], tensors[f"{name}_scales"]
            tensors[name] = Mxfp4(blocks, scales)
