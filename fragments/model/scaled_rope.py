"""The rope_scaling table of config.json."""

from generator.language import requires, splice

requires("rope")


@splice("hf.complete", after="rope")
def _(hf):
    scaling = hf["rope_scaling"] or {"rope_type": "default"}
    hf |= {f"rope_scaling.{name}": value for name, value in scaling.items()}


@splice("hf.export")
def _(hf):
    flat = [name for name in hf if name.startswith("rope_scaling.")]
    rope = {name.removeprefix("rope_scaling."): hf.pop(name) for name in flat}
    hf["rope_scaling"] = {name: value for name, value in rope.items() if value is not None}
