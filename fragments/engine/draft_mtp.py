"""Draft tokens by multi-token prediction: the first MTP layer predicts the token after the sampled one.

Source: DeepSeek-AI 2024, arXiv 2412.19437, sections 2.2 and 5.4.3; Leviathan et al. 2023, arXiv 2211.17192.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import alike, excludes, proceed, provide, receive, requires, splice
from generator.language.roles import (
    Cache,
    Decoder,
    EngineSettings,
    ModelConfig,
    MTPLayer,
    Pages,
    Request,
    argmax,
    positions_of,
)

requires("mtp", "speculation")
excludes("sliding_window", "chunked_attention")  # where layers differ in their number of pages
alike("hidden_mtp", "Decoder.hidden")


def count_draft_layers(config: ModelConfig, settings: EngineSettings) -> int:
    """Returns 1 with speculative decoding and an MTP layer, else 0. Later MTP layers would need its draft tokens."""
    return min(config.mtp_layers, settings.draft_tokens, 1)


def hidden_mtp(
    model: Decoder, x: Array, following: Array, positions: Array, pages: Pages, cache: Cache, config: ModelConfig
) -> tuple[Array, Cache]:
    """Applies the first MTP layer to x [B, T, D] and the following tokens [B, T]; returns its keys and values too."""
    embedded = model.embedding(following, config.dtype)

    def block(x, layer: MTPLayer):
        x = layer(x, embedded)
        return x, None

    x, _ = jax.lax.scan(block, x, jax.tree.map(lambda stack: stack[:1], model.mtp))
    receive(cache)
    return x, cache


@provide("hidden_mtp")
def positions(positions) -> Array:
    return positions


@provide("hidden_mtp")
def pages(pages) -> Pages:
    return pages


@provide("hidden_mtp")
def cache(cache) -> Cache:
    return cache


@provide("hidden_mtp.block")
def segment_ids() -> Array:
    return None


@provide("hidden_mtp.block")
def replay() -> Array:
    return None


@provide("pages_that_fit")
def draft_layers(config, settings) -> int:
    return count_draft_layers(config, settings)


@provide("Device.__init__")
def draft_layers(config, settings) -> int:
    return count_draft_layers(config, settings)


@splice("empty_pages.count")
def _(pages, count, draft_layers):
    proceed()
    count += draft_layers * pages  # after those of the model's layers


@splice("LayerState.fields")
def _():
    mtp_layer: Cache | None = None


@splice("empty_state.made")
def _(state, config, pages, draft_layers):
    if draft_layers:
        state = state._replace(mtp_layer=Cache(np.array([config.layers * pages], np.int32)))


@splice("run.scored")
def _(model, state, sequences, step, length, x, positions, new, following):
    every_x = x  # [B, T, D]
    proceed()
    if state.mtp_layer is not None:
        # the last key of a page depends on the first token of the next page, in which sequences that share the page may
        # differ. That can make a draft token worse, but never the output, as every draft token is verified
        every_position = positions_of(step, length)
        all_pages = Pages(state.key, state.value, step.block_tables)
        next_tokens = sequences[step.slots[:, None], every_position + 1]  # [B, T]
        x_mtp, new_of_mtp = hidden_mtp(
            model, every_x, next_tokens, every_position, all_pages, state.mtp_layer, model.config
        )
        columns = jnp.maximum(positions - step.starts[:, None], 0)  # [B, C]
        x_mtp = jnp.take_along_axis(x_mtp, columns[:, :, None], axis=1)  # [B, C, D]
        logits_mtp = model.embedding.logits(x_mtp, model.embedding.kernel())  # [B, C, V]
        draft_tokens = jax.vmap(argmax)(logits_mtp)
        following = jnp.concatenate([following, draft_tokens], axis=1)  # [B, 2 C]: and a draft token after each
        new = new, new_of_mtp


@splice("Engine.pool")
def _(self):
    # one draft token after the last token of each request, or none
    self.mtp_drafts: dict[Request, list[int]] = {}


@splice("Engine.released")
def _(self, request):
    self.mtp_drafts.pop(request, None)


@splice("Engine.sampled")
def _(self, request, row, scores, tokens, end):
    place = len(scores[row]) + end - 1
    self.mtp_drafts[request] = tokens[row][place : place + 1]


@splice("Engine.draft", after="draft_ngram")
def _(self, request, most):
    predicted = self.mtp_drafts[request] if most else []
    if predicted and request.drafts[:1] != predicted:
        request.drafts = predicted  # where both agree, prompt lookup continues the draft


@splice("test_draft_ngram.engine", optional=True)
def _(subject):
    subject.device.state = subject.device.state._replace(mtp_layer=None)  # the test makes its own draft tokens
