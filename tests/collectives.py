"""What devices send each other in a compiled program, as its text says."""

import math
import re

SENDS = re.compile(r"= (\(.*?\)|\S+) (all-[a-z-]+?|reduce-scatter|collective-[a-z]+)(?:-start)?\(")
AXES = re.compile(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}")  # from jax 0.12 on: mesh['data'=2,'fsdp'=4] {'fsdp'}


def sends(text: str) -> list[tuple[str, str]]:
    """The arrays and the kind of each collective, without those of groups of one device, which send nothing."""
    lines = ((line, found) for line in text.splitlines() if (found := SENDS.search(line)) and not alone(line))
    return [(shape, found[2]) for _, found in lines for shape in re.findall(r"f32\[([\d,]*)\]", found[1])]


def alone(line: str) -> bool:
    if axes := AXES.search(line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"\w+", axes[2])) == 1
    return "replica_groups={{0}," in line
