"""Guesses by the first layer ahead: what it predicts after a token that is drawn, the next step checks.

Source: DeepSeek-AI 2024, arXiv 2412.19437, sections 2.2 and 5.4.3; Leviathan et al. 2023, arXiv 2211.17192.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import alike, excludes, proceed, provide, receive, requires, splice
from generator.language.roles import Cache, Config, Decoder, EngineSettings, LayerAhead, Pages, Request, positions_of

requires("layers_ahead")
excludes("sliding_window", "chunked_attention")  # whose layers have other numbers of pages
alike("hidden_ahead", "Decoder.hidden")


def guessing_layers(config: Config, settings: EngineSettings) -> int:
    """1 where guesses are asked for and there is a layer ahead: the first; those after it would need its guesses."""
    return min(config.ahead, settings.guesses, 1)


def hidden_ahead(
    model: Decoder, x: Array, following: Array, positions: Array, pages: Pages, cache: Cache, config: Config
) -> tuple[Array, Cache]:
    """What the first layer ahead makes of x [B, T, D] and of the tokens that follow, [B, T]; its keys and values."""
    embedded = model.embedding(following, config.dtype)

    def block(x, layer: LayerAhead):
        x = layer(x, embedded)
        return x, None

    x, _ = jax.lax.scan(block, x, jax.tree.map(lambda stack: stack[:1], model.ahead))
    receive(cache)
    return x, cache


@provide("hidden_ahead")
def positions(positions) -> Array:
    return positions


@provide("hidden_ahead")
def pages(pages) -> Pages:
    return pages


@provide("hidden_ahead")
def cache(cache) -> Cache:
    return cache


@provide("hidden_ahead.block")
def segment_ids() -> Array:
    return None


@provide("pages_that_fit")
def layers_guessing(config, settings) -> int:
    return guessing_layers(config, settings)


@provide("Device.__init__")
def layers_guessing(config, settings) -> int:
    return guessing_layers(config, settings)


@splice("empty_pages.count")
def _(pages, count, layers_guessing):
    proceed()
    count += layers_guessing * pages  # after those of the model's layers


@splice("Device.layers")
def _(self, config, pages, layers_guessing):
    self.ahead = Cache(np.array([config.layers * pages], np.int32)) if layers_guessing else None


@provide("Device.run")
def ahead(self) -> Cache | None:
    return self.ahead


@splice("run.scored")
def _(model, key, value, texts, step, length, x, positions, cache, following, ahead):
    every_x = x  # [B, T, D]
    proceed()
    if ahead is not None:
        # the last key of a page is made with the first token of the next, of which texts that share the page may have
        # others: a guess may be the worse for it, the text never, as no guess is taken unchecked
        every_position, held = positions_of(step, length), Pages(key, value, step.tables)
        next_tokens = texts[step.slots[:, None], every_position + 1]  # [B, T]
        x_ahead, ahead_cache = hidden_ahead(model, every_x, next_tokens, every_position, held, ahead, model.config)
        columns = jnp.maximum(positions - step.starts[:, None], 0)  # [B, C]
        x_ahead = jnp.take_along_axis(x_ahead, columns[:, :, None], axis=1)  # [B, C, D]
        guessed = jnp.argmax(model.embedding.logits(x_ahead, model.embedding.kernel()), axis=-1)
        following = jnp.concatenate([following, guessed], axis=1)  # [B, 2 C]: and what may come after each
        cache = cache, ahead_cache


@splice("Engine.pool")
def _(self):
    self.ahead: dict[Request, list[int]] = {}  # what may come after the last token of each, one token or none


@splice("Engine.left")
def _(self, request):
    self.ahead.pop(request, None)


@splice("Engine.drawn")
def _(self, request, row, scores, tokens, end):
    place = len(scores[row]) + end - 1
    self.ahead[request] = tokens[row][place : place + 1]


@splice("Engine.guesses")
def _(self, request, most, guesses):
    proceed()
    likely = self.ahead[request] if most > 0 else []
    if likely and guesses[:1] != likely:
        guesses = likely  # else what followed before goes on after it


@splice("test_engine.guesses", optional=True)
def _(subject):
    subject.device.ahead = None  # the guesses are those of the test
