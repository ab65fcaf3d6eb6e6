"""What GPUs take: products by their FLOPs, other work by the bytes that it moves, and the links of nodes."""

import math
import re

from jax.sharding import Mesh

from generator.language.roles import KERNELS, Chip, Instruction, Program, arrays, grouped_flops

NOTHING = "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "after-all", "partition-id"


def places(mesh: Mesh) -> list[tuple[int, ...]]:
    """Returns where the devices of a mesh are: the node and the number."""
    return [(device.process_index, device.id) for device in mesh.devices.flat]


def bandwidth(group: list[tuple[int, ...]], kind: str, chip: Chip, places: list[tuple[int, ...]]) -> float:
    """Returns the bytes a second that a device of a group receives: by NVLink, or with its node's share of the network.

    What the members in one node need of others, their network cards receive once.
    """
    nodes = len({node for node, *_ in group})
    if nodes == 1:
        return chip.link
    shared = len(group) / nodes if not kind.endswith(("all-to-all", "permute")) else 1
    return min(chip.link, shared * chip.network)


def work(program: Program, x: Instruction, chip: Chip) -> tuple[str, float]:
    """Returns what kind of work an instruction is, and its seconds at the peak FLOP/s or the memory's bandwidth."""
    if x.kind in NOTHING or x.kind.endswith("-done"):
        return "", 0
    if x.kind == "custom-call":
        name = x.attribute(r'custom_call_target="([^"]*)"')
        if "fmha" in name:
            result = arrays(x.shape)[0][1]  # of the queries' shape
            keys = arrays(program.shapes[x.operands[1]])[0][1][1]  # [B, S, K, H]
            products = 5 if "Backward" in name else 2
            flops = 2 * products * math.prod(result) * keys / (2 if '"CAUSAL"' in x.text else 1)
            return "kernels", flops / chip.peak / KERNELS
        if "cublas" in name:
            left = arrays(program.shapes[x.operands[0]])[0][1]
            contracted = re.findall(r"\d+", x.attribute(r'lhs_contracting_dimensions":\[([^\]]*)\]'))
            flops = 2 * math.prod(arrays(x.shape)[0][1]) * math.prod(left[int(axis)] for axis in contracted)
            return "products", flops / chip.peak
        if "mosaic" in name:
            operands = [array for operand in x.operands for array in arrays(program.shapes[operand])]
            flops = grouped_flops(operands + arrays(x.shape))
            return "kernels" if flops else "unknown", flops / chip.peak / KERNELS
        return "unknown", 0
    seconds = program.traffic(x) / chip.bandwidth
    if flops := program.flops(x):
        return "products", max(flops / chip.peak, seconds)
    return "memory", seconds
