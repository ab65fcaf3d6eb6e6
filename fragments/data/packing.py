"""Sequence packing: documents share a sequence, each a segment that attends to itself alone.

Source: Ding et al. 2024, arXiv 2404.10830, section 3.
"""

import grain

from generator.language import splice
from generator.language.roles import Unlist

PACKING_BINS = 64  # sequences of a row that are packed together; more of them waste less and take longer to fill


@splice("make_datasets.sequences")
def _(pieces, split, length, sequences):
    # Best-fit packing (Ding et al. 2024, arXiv 2404.10830) cuts only documents longer than a sequence, and pads
    # 1 % (512 byte tokens) to 2 % (4,096) of the standard library's source. Concatenate-then-split pads nothing,
    # but cuts a document in most sequences, and Grain 0.2.18 can lose one when its state comes from JSON.
    sequences = grain.experimental.BestFitPackIterDataset(
        grain.experimental.FlatMapIterDataset(pieces, Unlist()),
        length_struct={"tokens": length, "targets": length},
        num_packing_bins=PACKING_BINS,
        shuffle_bins=split == "train",
    )
