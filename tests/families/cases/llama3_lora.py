"""Llama 3.1 with LoRA: what adapters add is zero at first, and the checkpoints are those of Llama 3.1."""

from families.cases import Case, Family
from families.cases.llama3 import FAMILY as LLAMA3


def published(preset: str, layers: int, width: int, key_width: int, mlp_width: int) -> tuple[float, str]:
    """With adapters of rank 8: each has as many rows as its projection has inputs and outputs."""
    billions, source = LLAMA3.published[preset]
    sides = 2 * (width + width) + 2 * (width + key_width) + 3 * (width + mlp_width)
    return billions + 8 * layers * sides / 1e9, f"{source}, and Hu et al. 2021, arXiv 2106.09685, section 4.1"


FAMILY = Family(
    architecture="llama3_lora",
    model=LLAMA3.model,
    config=LLAMA3.config,
    settings=LLAMA3.settings,
    cases={"grouped": Case()},
    published={
        "8b": published("8b", 32, 4096, 1024, 14336),
        "70b": published("70b", 80, 8192, 1024, 28672),
        "405b": published("405b", 126, 16384, 1024, 53248),
    },
)
