"""Settings of MPT in config.json, those of attention in a table of their own."""

from generator.language import splice

ATTENTION = {  # what the table may leave out
    "alibi": True,
    "alibi_bias_max": 8,
    "attn_type": "multihead_attention",
    "prefix_lm": False,
    "qk_ln": False,
}


@splice("hf.complete")
def _(hf):
    hf |= {f"attn_config.{name}": x for name, x in (ATTENTION | hf.pop("attn_config", {})).items() if x is not None}


@splice("hf.export")
def _(hf):
    table = [name for name in hf if name.startswith("attn_config.")]
    hf["attn_config"] = {name.removeprefix("attn_config."): hf.pop(name) for name in table}
