"""A norm of the embeddings.

Source: Le Scao et al. 2022, arXiv 2211.05100, section 3.2.3.
"""

from generator.language import point, splice
from generator.language.roles import Norm


@splice("Decoder.parameters")
def _(self, config):
    self.embedding_norm = Norm(config.width, config.norm_epsilon)


@splice("Decoder.embedded", before="sequence_parallel context")
def _(self, x):
    x = self.embedding_norm(x)


@splice("hf.tensors")
def _():
    with point("hf.embedding_norm"):
        yield "embedding_norm.scale", "model.embedding_norm.weight", "d -> d"
