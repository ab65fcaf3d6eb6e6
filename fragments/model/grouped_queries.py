"""Grouped-query attention: several query heads share a key and a value head.

Source: Ainslie et al. 2023, arXiv 2305.13245.
"""

from generator.language import splice
from generator.language.roles import PositiveInt


class ModelConfig:
    kv_heads: PositiveInt  # key and value heads, each shared by heads / kv_heads query heads


@splice("check_config.together")
def _(config, problems):
    if config.heads % config.kv_heads:
        problems.append(f"--kv-heads {config.kv_heads}: must divide --heads {config.heads}")


@splice("hf.sizes")
def _():
    yield "num_key_value_heads", "kv_heads"


@splice("hf.complete")
def _(hf):
    hf.setdefault("num_key_value_heads", hf["num_attention_heads"])
