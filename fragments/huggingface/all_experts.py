"""Experts in all layers of a model type whose first layers may be dense: their width is said, and no layer has it."""

from generator.language import excludes, splice

excludes("first_dense")


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"


@splice("hf.structure")
def _():
    yield "first_k_dense_replace", 0, "model/dense_layers and model/first_dense"
