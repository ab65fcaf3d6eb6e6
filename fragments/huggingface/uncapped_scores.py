"""Attention scores without a cap, where config.json would have them capped."""

from generator.language import excludes, splice

excludes("attention_soft_cap")


@splice("hf.structure")
def _():
    yield "attn_logit_softcapping", None, "model/attention_soft_cap"
