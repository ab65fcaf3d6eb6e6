"""An engine for layers with a recurrent state, which prompts share at page ends.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (pages that are freed and shared).
"""

import numpy as np
from jax import Array

from generator.language import proceed, provide, requires, splice
from generator.language.roles import EngineSettings, InputError, NonNegativeInt, Request, StateSlots, StepInput

requires("states")


@splice("EngineSettings.fields", after="speculation")
def _():
    # recurrent states kept at page ends, for prompts that share a prefix; 0: four times max_sequences
    state_snapshots: NonNegativeInt = 0


def count_slots(settings: EngineSettings) -> int:
    """Returns the slots for states: those that running sequences can need, those that are kept, and one of zeros."""
    of_running = settings.max_sequences * (1 + settings.draft_tokens)
    return 1 + of_running + (settings.state_snapshots or 4 * settings.max_sequences)


@splice("pages_that_fit.too_many")
def _(settings, needed):
    raise InputError(
        f"--max-sequences {settings.max_sequences}: {needed}: "
        "lower it, --draft-tokens or --state-snapshots, or raise --mesh-tensor"
    )


@provide("pages_that_fit")
def state_slots(settings) -> int:
    return count_slots(settings)


@provide("Device.__init__")
def state_slots(settings) -> int:
    return count_slots(settings)


@splice("StepInput.fields")
def _():
    states_read: Array | None = None  # as in `States`
    states_written: Array | None = None


def without_states(step: StepInput) -> StepInput:
    """Returns the input of a step that neither reads nor keeps a state."""
    rows = len(step.slots)
    columns = 1 if step.draft_tokens is None else 1 + step.draft_tokens.shape[1]
    written = np.zeros((rows, columns), np.int32)
    return step._replace(states_read=np.zeros(rows, np.int32), states_written=written)


@splice("Device.dummy_step", "Device.drafted", "Engine.step", after="speculation")
def _(step):
    step = without_states(step)


def tokens_to_snapshot(request: Request, size: int) -> int:
    """Returns the tokens up to the last page end before a sequence's last token, or those left after it."""
    end = (request.length - 1) // size * size
    return (end if request.computed < end else request.length) - request.computed


@splice("Engine.pool")
def _(self, settings):
    self.states = StateSlots(count_slots(settings), settings.page_size)


@splice("Engine.lengths")
def _(self, requests, lengths):
    lengths = [self.device.chunk_length(tokens_to_snapshot(request, self.settings.page_size)) for request in requests]


@splice("Engine.count")
def _(self, request, length, count):
    count = min(tokens_to_snapshot(request, self.settings.page_size), length)


@splice("Engine.share")
def _(self, request, sequence):
    most = self.states.shareable(request.root, request.digests, sequence, self.pool)
    sequence = sequence[: most * self.settings.page_size + 1]
    proceed()
    self.states.share(request, request.computed, request.digests)


@splice("Engine.not_admitted", "Engine.released")
def _(self, request):
    self.states.release(request)


@splice("Engine.block_tables")
def _(self, step, row, request):
    end = request.computed + int(step.counts[row])
    ends = [end] if step.draft_tokens is None else range(request.computed + 1, end + 1)
    read, written = self.states.move(request, request.computed, ends)
    step.states_read[row] = read
    step.states_written[row, : len(written)] = written


@splice("Engine.register")
def _(self, request, digest):
    self.states.register(request, len(request.prompt), len(request.digests), digest)
