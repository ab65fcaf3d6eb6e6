"""Sequence packing: documents share a sequence, and each attends only to itself.

Source: Ding et al. 2024, arXiv 2404.10830, section 3.
"""

from generator.language import excludes, splice

excludes("attend_nki")  # whose kernels know no documents

PACKING_BINS = 16  # unfinished sequences of a row; more of them waste less padding, but are reread on resume


@splice("Sequences.place")
def _(self, size, chosen, most):
    # Best-fit packing (Ding et al. 2024, arXiv 2404.10830) cuts only documents longer than a sequence.
    # Concatenate-then-split pads nothing, but cuts a document in most sequences. Each finished sequence lets
    # one more wait, so that the first ones come as soon as they are full.
    fitting = [i for i, used in enumerate(self.used) if used + size <= self.length]
    chosen = max(fitting, key=self.used.__getitem__, default=len(self.waiting))
    most = min(PACKING_BINS, 1 + self.given)
