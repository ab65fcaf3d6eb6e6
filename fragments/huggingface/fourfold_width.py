"""A feed-forward four times as wide as the model, as config.json does not say its width."""

from generator.language import splice
from generator.language.roles import InputError


@splice("hf.complete")
def _(hf):
    hf["intermediate_size"] = 4 * hf["hidden_size"]


@splice("hf.export")
def _(hf):
    inner = hf.pop("intermediate_size")
    if inner != 4 * hf["hidden_size"]:
        raise InputError(f"--mlp-width {inner}: must be 4 * --width in an export, as config.json has no other")
