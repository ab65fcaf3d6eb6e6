"""A penalty on large embeddings, carried out to the loss."""

from generator.language import emit, splice


@splice("Decoder.embedded")
def _(x):
    penalty: float = max(x)
    emit(penalty)


@splice("loss.terms")
def _(total, penalty):
    total = total + 0.01 * penalty
