"""A model without positions whose config.json can have a rotation."""

from generator.language import excludes, splice

excludes("rope")


@splice("hf.structure")
def _():
    yield "rope_parameters", {"rope_theta": None, "rope_type": "default"}, "rotated heads (model/rope)"
