"""Logits without a cap, where config.json would have them capped."""

from generator.language import excludes, splice

excludes("logit_soft_cap")


@splice("hf.structure")
def _():
    yield "final_logit_softcapping", None, "model/logit_soft_cap"
