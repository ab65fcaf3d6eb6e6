"""What TPUs take: the compiler's own estimates of cycles, kernels by their FLOPs, and the links of a torus."""

import math
import re

from jax.sharding import Mesh

from generator.language import splice
from generator.language.roles import KERNELS, Chip, Instruction, Program, arrays, grouped_flops


@splice("Chip.fields")
def _():
    bandwidth: float  # of its memory, bytes a second
    clock: float  # of the compiler's estimates of cycles, Hz


def places(mesh: Mesh) -> list[tuple[int, ...]]:
    """Returns where the devices of a mesh are: (slice, x, y, z)."""
    return [(getattr(device, "slice_index", 0), *device.coords) for device in mesh.devices.flat]


def bandwidth(group: list[tuple[int, ...]], kind: str, chip: Chip, places: list[tuple[int, ...]]) -> float:
    """Returns the bytes a second that a device of a group moves along all axes of the torus that the group spans.

    An axis has two links, or one if it does not wrap around: whole cubes of 4 x 4 x 4
    do, and whole sides of 16 in two dimensions.
    """
    if len({place[0] for place in group}) > 1:
        return chip.network
    sides = [len(set(axis)) for axis in list(zip(*group, strict=True))[1:]]
    full = [len(set(axis)) for axis in list(zip(*places, strict=True))[1:]]
    wrapped = [side == 16 if full[-1] == 1 else all(x % 4 == 0 for x in full) for side in full]
    links = [1 + (w and x == y) for x, y, w in zip(sides, full, wrapped, strict=True) if x > 1]
    if kind == "collective-permute":
        return chip.link
    if kind.endswith("all-to-all"):  # half of the data crosses the middle of the longest axis
        return chip.link * 4 * min(links, default=2) / max(sides)
    return chip.link * sum(links or [1])


def kernel_flops(program: Program, kernel: Instruction) -> float:
    """Returns the FLOPs of splash attention or of grouped products, from their shapes; 0 for other kernels."""
    operands = [array for name in kernel.operands for array in arrays(program.shapes[name])]
    if match := re.match(r"splash_mha_(fwd|dq|dkv)", kernel.name):
        q, k, *_ = (sides for dtype, sides in operands if dtype in ("bf16", "f32") and len(sides) >= 3)
        _, rows, columns = next(sides for dtype, sides in operands if dtype == "s8")  # blocks that it computes
        share = (rows + 1) / (2 * rows) if rows == columns else columns / rows
        products = {"fwd": 2, "dq": 3, "dkv": 5}[match[1]]
        return 2 * products * math.prod(q) * k[-2] * share
    return grouped_flops(operands + arrays(kernel.shape)) if "ragged" in kernel.name or "gmm" in kernel.name else 0


def work(program: Program, x: Instruction, chip: Chip) -> tuple[str, float]:
    """Returns what kind of work an instruction is, and its seconds: as libtpu estimated, or from a kernel's FLOPs."""
    if cycles := x.attribute(r'"estimated_cycles":"(\d+)"'):
        return "products" if program.has(x, "convolution", "dot") else "memory", int(cycles) / chip.clock
    if x.kind == "custom-call" and '"tpu_custom_call"' in x.text:
        flops = kernel_flops(program, x)
        return "kernels" if flops else "unknown", flops / chip.peak / KERNELS
    return "", 0
