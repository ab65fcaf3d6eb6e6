"""Weights as they are, where the model type was released with quantized ones."""

from generator.marks import splice
from generator.roles import InputError


@splice("hf.read")
def _(hf, path):
    if "quantization_config" in hf:
        method = hf["quantization_config"].get("quant_method")
        raise InputError(
            f"{path}: its weights are quantized ({method}): load them in transformers with a quantization_config "
            "of dequantize=True, and give what save_pretrained then writes"
        )
