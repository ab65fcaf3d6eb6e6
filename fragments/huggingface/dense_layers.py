"""Dense layers before those with experts: none if config.json leaves their number out."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("first_k_dense_replace", 0)
