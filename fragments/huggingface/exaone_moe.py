"""Settings and tensors of K-EXAONE in checkpoints."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    dense = hf.pop("first_k_dense_replace")
    kinds = ["dense" if layer < dense else "sparse" for layer in range(hf["num_hidden_layers"])]
    hf.setdefault("mlp_layer_types", kinds)


@splice("hf.opened")
def _(tensors):
    tensors = {name: x for name, x in tensors.items() if not name.startswith("mtp.")}  # of a head for further tokens
