"""Layers after the last, which predict tokens beyond the next in the files of some models, are passed over."""

from generator.marks import splice
from generator.roles import read_json


@splice("hf.opened")
def _(tensors, hf_dir):
    layers = read_json(hf_dir / "config.json")["num_hidden_layers"]
    later = tuple(f"model.layers.{layers + depth}." for depth in range(8))
    tensors = {name: x for name, x in tensors.items() if not name.startswith(later)}


@splice("hf.complete")
def _(hf):
    hf["num_nextn_predict_layers"] = 0


@splice("hf.structure")
def _():
    yield "num_nextn_predict_layers", 0, "layers that predict tokens beyond the next"
