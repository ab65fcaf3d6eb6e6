"""Matrices published in fp8, dequantized when read: each block of 128 x 128 numbers has a scale.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 3.3.2.
"""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from generator.language import splice

FP8_BLOCK = 128  # rows and columns


class Fp8Tensor:
    """An fp8 tensor of a safetensors file, which safetensors does not read into NumPy."""

    def __init__(self, path: Path, name: str):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))[name]
        self.path = path
        self.shape = header["shape"]
        self.offset = 8 + size + header["data_offsets"][0]

    def get_dtype(self) -> str:
        return "F8_E4M3"

    def get_shape(self) -> list[int]:
        return self.shape

    def __getitem__(self, everything) -> np.ndarray:
        return np.memmap(self.path, ml_dtypes.float8_e4m3fn, "r", self.offset, tuple(self.shape))


class Fp8Blocks:
    """An fp8 matrix times the scales of its blocks; blocks at its edges may be smaller."""

    def __init__(self, matrix: Fp8Tensor, scales: Any):
        self.matrix, self.scales = matrix, scales

    def get_dtype(self) -> str:
        return "F32"

    def get_shape(self) -> list[int]:
        return self.matrix.get_shape()

    def __getitem__(self, everything) -> np.ndarray:
        rows, columns = self.get_shape()
        scales = self.scales[...].astype(np.float32).repeat(FP8_BLOCK, 0)[:rows].repeat(FP8_BLOCK, 1)[:, :columns]
        return self.matrix[...].astype(np.float32) * scales


@splice("hf.complete")
def _(hf):
    blocks = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [FP8_BLOCK, FP8_BLOCK]}
    if blocks.items() <= hf.get("quantization_config", {}).items():
        del hf["quantization_config"]  # dequantized when read


@splice("hf.found")
def _(in_file, path):
    in_file |= {name: Fp8Tensor(path, name) for name, tensor in in_file.items() if tensor.get_dtype() == "F8_E4M3"}


@splice("hf.opened")
def _(tensors):
    for matrix in [name for name in tensors if f"{name}_scale_inv" in tensors]:
        scales = tensors[f"{matrix}_scale_inv"]
        shape = tensors[matrix].get_shape()
        is_scaled = scales.get_shape() == [-(-size // FP8_BLOCK) for size in shape] and len(shape) == 2
        if is_scaled and tensors[matrix].get_dtype() == "F8_E4M3" and scales.get_dtype() in ("F32", "BF16"):
            del tensors[f"{matrix}_scale_inv"]
            tensors[matrix] = Fp8Blocks(tensors[matrix], scales)
