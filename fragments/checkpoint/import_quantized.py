"""Command line: import of a Hugging Face directory with kernels that are quantized at once."""

import dataclasses
from typing import Annotated, Literal

import tyro

from generator.language import provide, requires, splice
from generator.language.roles import quantize_kernels

requires("model/qlora", "checkpoint/convert")


# fmt: off
@provide("import_hf", optional=True)
def quantize_base() -> Annotated[
    Literal["none", "int8", "nf4"], tyro.conf.arg(help="Format of the kernels that adapters leave as they are.")
]:
    return "none"
# fmt: on


@splice("import_hf.opened", after="import_adapter")
def _(config, model, quantize_base):
    config = dataclasses.replace(config, quantize_base=quantize_base)
    quantize_kernels(model, quantize_base)
