"""Sequences of an engine that follow a grammar: a step samples only tokens that it allows.

Source: Willard and Louf 2023, arXiv 2307.09702, section 3 (masks of the vocabulary).
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array
from llguidance import LLMatcher

from generator.language import requires, splice
from generator.language.roles import Grammars, InputError, Request, SamplingParams, sample

requires("grammars", "speculation")


@splice("SamplingParams.fields")
def _():
    grammar: str = ""  # what the text must match, in llguidance's form of Lark


@splice("field_problems.kind", after="sampling", before="longrope linear_multipliers")
def _(field, value, allowed):
    if field.name == "grammar":
        allowed = isinstance(value, str)  # of several lines too


@splice("Request.fields")
def _():
    matcher: LLMatcher | None = None  # state of its grammar, after the tokens generated so far


@splice("StepInput.fields")
def _():
    # [R, V / 32]: bits of the tokens that may be sampled; a row for each sequence, or for it and each of its drafts
    allowed: Array | None = None


@splice("Engine.made")
def _(self):
    self.grammars: Grammars | None = None  # set by those who know the tokenizer


def start_grammar(
    grammars: Grammars | None, sampling: SamplingParams, problems: list[tuple[str | None, str]]
) -> LLMatcher | None:
    """Returns the state of the grammar of a request, if it has one; appends any fault to `problems`."""
    if not sampling.grammar:
        return None
    if grammars is None:
        problem = "the engine knows no tokenizer: set its grammars"
    elif sampling.min_tokens or sampling.ignore_eos:
        problem = "decides where the text ends: leave out min_tokens and ignore_eos"
    else:
        try:
            return grammars.matcher(sampling.grammar)
        except InputError as error:
            problem = str(error)
    problems.append(("grammar", f"grammar: {problem}"))
    return None


@splice("Engine.request")
def _(self, sampling, request, problems):
    request.matcher = start_grammar(self.grammars, sampling, problems)


@splice("Engine.admitted")
def _(self):
    if any(request.matcher for request in self.running):
        self.collect()  # what a grammar allows depends on the latest tokens
    for request in [x for x in self.running if x.matcher and x.matcher.is_error()]:
        self.end(request, "error")  # the grammar grew beyond the limits of llguidance


@functools.cache
def every_token(rows: int, words: int) -> np.ndarray:
    """Returns bits that allow every token, int32 [rows, words]: not to be changed."""
    return np.full((rows, words), -1, np.int32)


def allowed_tokens(
    grammars: Grammars | None, requests: list[Request], rows: int, drafts: int, words: int
) -> np.ndarray:
    """Returns the bits of the tokens that may follow each sequence, and each of its drafts: int32 [R, words].

    Steps without a grammar have bits too, so that each shape of step is one program.
    """
    followed = [(row * (1 + drafts), x.matcher, x.drafts) for row, x in enumerate(requests) if x.matcher]
    if not (grammars and followed):
        return every_token(rows * (1 + drafts), words)
    # llguidance writes a row for each draft, and checks no bounds
    allowed = every_token(rows * (1 + drafts), words).copy()
    grammars.fill(allowed, followed)
    return allowed


@splice("Engine.step", before="speculation", after="window_pages")
def _(self, requests, step, length):
    drafts = length - 1 if requests[0].drafts else 0
    words = self.device.mask_words
    step = step._replace(allowed=allowed_tokens(self.grammars, requests, len(step.slots), drafts, words))


@splice("Engine.sampled", before="draft_mtp")
def _(request, row, tokens, first, end):
    if request.matcher and request.matcher.is_error():  # since its mask, which then allowed only an end
        end = first
    elif request.matcher:
        request.matcher.consume_tokens(tokens[row][first:end])


@splice("Device.made")
def _(self, config):
    self.mask_words = -(-config.vocab_size // 32)  # with a bit for each token


@splice("Device.dummy_step", after="window_pages engine_states")
def _(self, rows, step):
    step = step._replace(allowed=every_token(rows, self.mask_words))


@splice("Device.drafted", after="engine_states")
def _(step):
    step = step._replace(allowed=np.repeat(step.allowed, 1 + step.draft_tokens.shape[1], axis=0))


def keep_allowed(logits: Array, allowed: Array) -> Array:
    """Masks logits [B * C, V] with -inf where a token has no bit in `allowed` [B or B * C, V / 32]."""
    words = jnp.repeat(allowed, len(logits) // len(allowed), axis=0)
    bits = (words[:, :, None] >> jnp.arange(32)) & 1  # [B * C, V / 32, 32]
    return jnp.where(bits.reshape(len(logits), -1)[:, : logits.shape[1]] == 1, logits, -jnp.inf)


@splice("run.sampled")
def _(step, logits, B, C, tokens, positions, each, own_biases, sampled):
    choices = keep_allowed(logits.reshape(B * C, -1), step.allowed)
    sampled = sample(choices, tokens, positions.ravel() + 1, each[1], own_biases).reshape(B, C)
