"""Mixtures of several sources of documents, each with a weight and its own epochs.

Written as "0.7:A,0.3:B". Documents come by weight, to a hundredth of the smallest. A pass over a mixture
ends when the first source ends.
"""

import re

import grain

from generator.language import requires, splice
from generator.language.roles import InputError, find_files, open_pieces, read_description, repeat

requires("data/prepared")


def split_mixture(data: str) -> list[tuple[float, str]]:
    """Returns the weight and path of each source in "0.7:A,0.3:B", or of a single path."""
    parts = [part.partition(":") for part in re.split(r",(?=[^,:/]*:(?!//))", data)]
    try:
        weighted = [(float(weight), path) for weight, _, path in parts]
    except ValueError:  # a path
        return [(1.0, data)]
    if not all(1e-6 <= weight <= 1e6 and path for weight, path in weighted):
        raise InputError(f"data {data}: must be WEIGHT:PATH,WEIGHT:PATH, weights from 0.000001 to 1,000,000")
    return weighted


@splice("open_source.pieces")
def _(config, data, tokenizer, split, source):
    weights, paths = zip(*split_mixture(data), strict=True)
    source = grain.MapDataset.mix([open_pieces(config, path, tokenizer, split) for path in paths], weights)


@splice("Batches.order")
def _(self, seed, order):
    weights = [weight for weight, _ in split_mixture(self.config.data)]
    order = grain.MapDataset.mix([repeat(source, seed) for source in self.source.parents], weights)


@splice("show.order", optional=True)
def _(config, source, order):
    weights = [weight for weight, _ in split_mixture(config.data)]
    order = grain.MapDataset.mix([repeat(parent, config.seed) for parent in source.parents], weights)


@splice("fingerprint.sources")
def _(data, sources):
    paths = [path for _, path in split_mixture(data)]
    sources = [read_description(x) or [[file.name, file.stat().st_size] for file in find_files(x)] for x in paths]


@splice("keep_indices.sources")
def _(config, sources):
    sources = [path for data in (config.data, config.eval_data) if data for _, path in split_mixture(data)]
