"""Attention to earlier tokens only, where the model type has attention in both directions too."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("use_bidirectional_attention", False)


@splice("hf.structure")
def _():
    yield "use_bidirectional_attention", False, "attention in both directions"
