"""Logits of models in which no layer knows of positions."""

from generator.language import excludes, splice

excludes("rope", "learned_positions")


@splice("forward.logits")
def _(model, tokens, segment_ids, logits):
    logits = model(tokens, segment_ids)
