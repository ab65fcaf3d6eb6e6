"""Sequence packing: documents share a sequence, and each attends only to itself.

Source: Ding et al. 2024, arXiv 2404.10830, section 3.
"""

from generator.language import excludes, splice

excludes("attend_nki")  # whose kernels know no documents

PACKING_BINS = 32  # unfinished sequences; more of them waste less padding, but are reread on resume


@splice("Sequences.place")
def _(self, size, chosen, most):
    # Best-fit packing (Ding et al. 2024, arXiv 2404.10830) cuts only documents longer than a sequence.
    # Concatenate-then-split pads nothing, but cuts a document in most sequences.
    fitting = [i for i in range(self.closed, len(self.used)) if self.used[i] + size <= self.length]
    chosen = max(fitting, key=self.used.__getitem__, default=len(self.waiting))
    most = PACKING_BINS


@splice("Sequences.choose")
def _(self, chosen):
    # the fullest; but at the end of an epoch, and every 16th time, the oldest, so that none waits for long
    chosen = 0 if self.closed or self.packed % 16 == 0 else self.used.index(max(self.used))
