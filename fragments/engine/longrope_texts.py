"""An engine of rotations that depend on the length of a text: a text that outgrows the original context is read again.

Source: Ding et al. 2024, arXiv 2402.13753, section 3.3 (factors of short texts); as in `generate` of transformers.
"""

import numpy as np
from jax import Array

from generator.language import proceed, provide, requires, splice

requires("longrope")


@splice("Device.layers")
def _(self, config, settings):
    self.original_context, self.uses_long = config.rope_original_context, np.zeros(settings.max_rows + 1, bool)


@splice("Device.write_text")
def _(self, slot, text):
    self.uses_long[slot] = len(text) > self.original_context  # until the text is read again


@provide("Device.run")
def uses_long(self, step) -> Array:
    return self.uses_long[step.slots][:, None]  # [B, 1]


@splice("Engine.admit")
def _(self, request, text):
    if len(text) > self.config.rope_original_context:  # and so it stays
        request.root = request.root.removesuffix(b"long") + b"long"  # keys of short texts have other rotations


@splice("Engine.continue")
def _(self, request):
    if request.drawn > self.config.rope_original_context and not self.device.uses_long[request.slot]:
        self.take_in(len(self.under_way))  # it may have ended
        if request in self.rows:
            self.leave(request)
            self.waiting.appendleft(request)


@splice("Engine.guesses", after="guess_ahead")
def _(self, request, guesses):
    proceed()
    if not self.device.uses_long[request.slot]:
        guesses = guesses[: self.config.rope_original_context - request.drawn]
