"""An engine for rotations that depend on the length: a sequence that outgrows the original context is prefilled again.

Source: Ding et al. 2024, arXiv 2402.13753, section 3.3 (short factors); as `generate` of transformers does.
"""

import numpy as np
from jax import Array

from generator.language import provide, requires, splice
from generator.language.roles import RequestStatus

requires("longrope")


@splice("Device.layers")
def _(self, config, settings):
    self.original_context = config.rope_original_context
    self.uses_long = np.zeros(settings.max_sequences + 1, bool)


@splice("Device.write")
def _(self, slot, sequence):
    self.uses_long[slot] = len(sequence) > self.original_context  # until the next prefill


@provide("Device.run")
def uses_long(self, step) -> Array:
    return self.uses_long[step.slots][:, None]  # [B, 1]


@splice("Engine.admit")
def _(self, request, sequence):
    if len(sequence) > self.config.rope_original_context:
        request.root = request.root.removesuffix(b"long") + b"long"  # shares no keys with short ones, rotated otherwise


@splice("Engine.decode")
def _(self, request):
    if request.length > self.config.rope_original_context and not self.device.uses_long[request.slot]:
        self.collect()  # it may have ended
        if request.status is RequestStatus.DECODE:
            self.preempt(request)


@splice("Engine.draft", after="draft_ngram draft_mtp")
def _(self, request):
    if not self.device.uses_long[request.slot]:
        request.drafts = request.drafts[: self.config.rope_original_context - request.length]
