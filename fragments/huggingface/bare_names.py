"""Checkpoints of the model without its head, whose tensors lack its name."""

from generator.language import setting, splice


@splice("hf.opened")
def _(tensors):
    known = (setting("model_name"), "lm_head.")
    tensors = {name if name.startswith(known) else setting("model_name") + name: x for name, x in tensors.items()}
