"""Mixtures of several sources of documents, each with a weight and its own epochs.

Written as "0.7:A,0.3:B". Every row has documents by weight, to a hundredth of the smallest; an evaluation ends
when the first source ends.
"""

import re

import grain

from generator.language import requires, splice
from generator.language.roles import InputError, find_files, open_pieces, read_description

requires("data/prepared")


def split_mixture(data: str) -> list[tuple[float, str]]:
    """Returns the weight and path of each source in "0.7:A,0.3:B", or of a single path."""
    parts = [part.partition(":") for part in re.split(r",(?=[^,:/]*:(?!//))", data)]
    try:
        found = [(float(weight), path) for weight, _, path in parts]
    except ValueError:  # a path
        return [(1.0, data)]
    if not all(1e-6 <= weight <= 1e6 and path for weight, path in found):
        raise InputError(f"data {data}: must be WEIGHT:PATH,WEIGHT:PATH, weights from 0.000001 to 1,000,000")
    return found


@splice("make_datasets.orders")
def _(config, data, tokenizer, split, rows, seed, orders):
    weights, paths = zip(*split_mixture(data), strict=True)
    sources = [open_pieces(config, path, tokenizer, split) for path in paths]
    orders = [grain.MapDataset.mix(sources, weights)]
    if split == "train":
        endless = [source.seed(seed).shuffle().repeat() for source in sources]
        dealt = [[source[row :: config.batch_size] for source in endless] for row in rows]
        orders = [grain.MapDataset.mix(parts, weights) for parts in dealt]


@splice("fingerprint.sources")
def _(data, sources):
    paths = [path for _, path in split_mixture(data)]
    sources = [read_description(x) or [[file.name, file.stat().st_size] for file in find_files(x)] for x in paths]
