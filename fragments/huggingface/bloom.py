"""Settings and tensors of BLOOM in checkpoints."""

from generator.language import proceed, splice


@splice("hf.embedding_norm")
def _():
    proceed()
    yield "embedding_norm.bias", "model.embedding_norm.bias", "d -> d"


@splice("hf.complete", before="fourfold_width")
def _(hf):
    if "n_embed" in hf:  # in its first files
        hf["hidden_size"] = hf.pop("n_embed")
