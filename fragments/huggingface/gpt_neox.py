"""Names of GPT-NeoX in checkpoints and config.json."""

from generator.language import splice


@splice("hf.buffers")
def _():
    yield ".attention.bias"  # the causal mask, in older files
    yield ".attention.masked_bias"


@splice("hf.complete", before="rope rotated_share")
def _(hf):
    hf = {"rope_theta": hf.get("rotary_emb_base", 10_000.0), "partial_rotary_factor": hf.get("rotary_pct", 0.25)} | hf


@splice("hf.export", after="scaled_rope")
def _(hf):
    hf["rotary_emb_base"] = hf.pop("rope_theta")
    hf["rotary_pct"] = hf.pop("partial_rotary_factor")
    hf.pop("head_dim")
