"""No token for padding, where transformers would take one that small vocabularies lack."""

from generator.language import splice


@splice("hf.export")
def _(hf):
    hf["pad_token_id"] = None
