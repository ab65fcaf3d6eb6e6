"""A rotary embedding as it is, where transformers would scale it unless config.json says otherwise."""

from generator.language import excludes, splice

excludes("scaled_rope")


@splice("hf.export")
def _(hf):
    hf["rope_scaling"] = {"rope_type": "default"}
