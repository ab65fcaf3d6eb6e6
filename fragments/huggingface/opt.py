"""Settings of OPT in config.json: it has no epsilon, and says of one size that embeddings are of the model's width."""

from generator.language import splice
from generator.language.roles import InputError


@splice("hf.complete")
def _(hf):
    hf.setdefault("word_embed_proj_dim", hf["hidden_size"])


@splice("hf.structure")
def _(config):
    yield "word_embed_proj_dim", config.width, "embeddings of that width"


@splice("hf.export")
def _(hf):
    if (epsilon := hf.pop("layer_norm_eps")) != 1e-5:
        raise InputError(f"--norm-epsilon {epsilon}: must be 1e-5 in an export, as config.json has no other")
