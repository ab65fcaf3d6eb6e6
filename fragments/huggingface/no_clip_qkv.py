"""Queries, keys and values as they are, where the model type can clip them too."""

from generator.language import excludes, splice

excludes("clip_qkv")


@splice("hf.structure")
def _():
    yield "clip_qkv", None, "model/clip_qkv"
