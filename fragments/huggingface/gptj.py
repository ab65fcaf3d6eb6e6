"""Settings of GPT-J in config.json."""

from generator.language import splice


@splice("hf.buffers")
def _():
    yield ".attn.bias"  # the causal mask, in older files
    yield ".attn.masked_bias"


@splice("hf.complete")
def _(hf):
    hf.setdefault("n_inner", 4 * hf["n_embd"])


@splice("hf.attention_bias")
def _():
    pass


@splice("hf.export", after="scaled_rope")
def _(hf):
    hf["rotary_dim"] = round(hf.pop("partial_rotary_factor") * hf.pop("head_dim"))
    del hf["rope_theta"], hf["rope_scaling"]
