"""Indexers that no loss trains: weight decay leaves them as they are."""

import jax

from generator.language import proceed, requires, splice
from generator.language.roles import named_arrays

requires("indexer")


@splice("decays.matrices")
def _(model, matrices):
    proceed()
    # a choice has no gradient, and decay alone would shrink what makes it
    moved = [decays and ".indexer." not in name for name, decays in named_arrays(matrices).items()]
    matrices = jax.tree.unflatten(jax.tree.structure(matrices), moved)


@splice("test_adamw.words", optional=True)
def _(words):
    words = [*words, "indexer"]
