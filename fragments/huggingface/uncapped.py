"""Scores and logits without caps, where config.json would have them capped."""

from generator.marks import excludes, splice

excludes("attention_soft_cap", "logit_soft_cap")


@splice("hf.complete")
def _(hf):
    hf.setdefault("attn_logit_softcapping", None)
    hf.setdefault("final_logit_softcapping", None)


@splice("hf.structure")
def _():
    yield "attn_logit_softcapping", None, "model/attention_soft_cap"
    yield "final_logit_softcapping", None, "model/logit_soft_cap"
