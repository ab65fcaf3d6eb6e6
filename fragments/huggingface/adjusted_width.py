"""A feed-forward whose width follows from another one in config.json."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    if hf["block_auto_adjust_ff_dim"]:
        width = int(hf["block_ffn_dim_multiplier"] * int(2 * hf.get("block_ff_dim", hf["intermediate_size"]) / 3))
        multiple = hf["block_multiple_of"]
        adjusted = multiple * -(-width // multiple)
        hf = hf | {"intermediate_size": adjusted, "block_ff_dim": adjusted, "block_auto_adjust_ff_dim": False}


@splice("hf.structure")
def _():
    yield "block_auto_adjust_ff_dim", False, "a feed-forward of that width"
