"""Says what kind of model a config.json describes, if it is none that Loomax has."""

from __future__ import annotations

import re
from typing import Any

from generator.errors import short

# names of settings that only layers with a state have: of Mamba, RG-LRU, convolutions, linear attention, RWKV, xLSTM
STATE = re.compile(
    r"mamba_|ssm_|(ssm_)?state_size$|conv_L_cache$|lru_width$|attn_type_list$|hybrid_override_pattern$|rescale_every$"
    r"|chunkwise_kernel$|linear_(a_log|attn|conv|head|key|num|value)"
)
STATE_TYPES = {"conv", "hybrid", "linear_attention", "mamba", "mamba2", "recurrent"}
TYPES = ("layer_types", "layers_block_type", "block_types", "_block_types")
ATTENTION = ("num_attention_heads", "n_head")


def describe_other_kind(hf: dict[str, Any]) -> tuple[str, str]:
    """Returns the kind of a model that Loomax does not have, and what it has instead; '' and '' for any other."""
    architectures = hf.get("architectures")
    classes = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    name = short(repr(hf["model_type"])) + (f" ({short(classes[0])})" if classes else "")
    text = "models that predict the next token of a text"
    if hf.get("is_encoder_decoder"):
        return f"an encoder-decoder model, {name}", text
    if inputs := [name for name in ("text", "vision", "audio") if isinstance(hf.get(f"{name}_config"), dict)]:
        return f"a model of several parts ({', '.join(inputs)}), {name}", text
    if classes and not any(name.endswith(("CausalLM", "LMHeadModel")) for name in classes):
        return f"an encoder, or another model that does not continue a text, {name}", text
    if _has_state(hf):
        has_attention = any(isinstance(hf.get(setting), int) for setting in ATTENTION)
        kind = "a hybrid of attention and layers with a recurrent state" if has_attention else "a recurrent model"
        return f"{kind}, {name}", "the recurrent layers of docs/families.md"
    return "", ""


def _has_state(hf: dict[str, Any]) -> bool:
    """Returns whether some layers have a recurrent state or a convolution, by the settings that are on."""
    lists = [hf[name] for name in TYPES if isinstance(hf.get(name), list)]
    types = {item for items in lists for item in items if isinstance(item, str)}
    return bool(types & STATE_TYPES) or any(STATE.match(name) for name, value in hf.items() if value is not None)
