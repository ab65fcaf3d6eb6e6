"""Speculative decoding: a step verifies draft tokens of each sequence, and keeps those that it would have sampled.

Source: Leviathan et al. 2023, arXiv 2211.17192.
"""

import dataclasses
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import point, requires, splice

requires("draft_ngram or draft_mtp")


@splice("EngineSettings.fields")
def _():
    draft_tokens: Annotated[int, 0, 64] = 0  # tokens that speculative decoding drafts for each sequence in a step


@splice("Request.fields")
def _():
    drafts: list[int] = dataclasses.field(default_factory=list)  # tokens that its next step verifies


@splice("StepInput.fields")
def _():
    draft_tokens: Array | None = None  # [B, T - 1]: drafts of the tokens after the first, to verify


@splice("run.sequences")
def _(sequences, step):
    if step.draft_tokens is not None:  # one is sampled after each: the host accepts them up to the first that differs
        drafted = step.starts[:, None] + jnp.arange(step.draft_tokens.shape[1]) + 1
        sequences = sequences.at[step.slots[:, None], drafted].set(step.draft_tokens)


@splice("run.is_last")
def _(step, positions, is_last):
    if step.draft_tokens is not None:
        is_last = positions >= 0  # of those whose drafts are accepted so far


@splice("Device.steps")
def _(self, width, cached):
    if G := self.settings.draft_tokens:
        for B in self.shapes.rows:
            step = self.dummy_step(B, width)._replace(draft_tokens=np.zeros((B, G), np.int32))
            point("Device.drafted", step)
            yield step, 1 + G, True, f"{B} x {1 + G} tokens, {G} of them drafts, {cached}"


@splice("Engine.admitted")
def _(self):
    if self.settings.draft_tokens:
        self.collect()  # drafts need the latest tokens


@splice("Engine.scheduled")
def _(self, batch, request):
    for request in batch if self.settings.draft_tokens else ():
        room = (len(request.pages) + len(self.pool.free_pages)) * self.settings.page_size - request.length
        left = request.sampling.max_tokens - len(request.tokens) - 1
        most = max(min(self.settings.draft_tokens, room, left), 0)
        point("Engine.draft", request, most)
        self.grow(request, request.length + len(request.drafts))
    speculative = [request for request in batch if request.drafts]
    batch = [request for request in batch if not request.drafts]


@splice("Engine.decoded")
def _(self, steps, speculative):
    if speculative:
        rows = self.device.rows_for(len(speculative))
        steps.append(self.start(rows, 1 + self.settings.draft_tokens, speculative, score_all=True))


@splice("Engine.step", after="window_pages")
def _(requests, step, length):
    if requests[0].drafts:
        step = step._replace(draft_tokens=np.zeros((len(step.slots), length - 1), np.int32))


@splice("Engine.row")
def _(step, row, request):
    if request.drafts:
        step.counts[row] += len(request.drafts)
        step.draft_tokens[row, : len(request.drafts)] = request.drafts
        request.drafts = []


@splice("Engine.verified")
def _(step, row, tokens, first, end):
    if step.draft_tokens is not None:
        drafted = step.draft_tokens[row, : step.counts[row] - 1].tolist()
        accepted = [draft == token for draft, token in zip(drafted, tokens[row], strict=False)]
        first = 0
        end = [*accepted, False].index(False) + 1


@splice("window_room.written", optional=True)
def _(settings, written):
    written = max(written, 1 + settings.draft_tokens)


@splice("drafting.sizes", optional=True)
def _(sizes, count):
    sizes["draft_tokens"] = count
