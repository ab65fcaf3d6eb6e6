"""Experts in all layers of a model type that can have dense ones: config.json has a width that none uses."""

from generator.language import excludes, splice

excludes("first_dense")


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"


@splice("hf.structure")
def _():
    yield "first_k_dense_replace", 0, "dense layers before (model/dense_layers, model/first_dense)"
