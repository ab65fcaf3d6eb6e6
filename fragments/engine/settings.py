"""Settings of an engine and of its requests."""

import dataclasses
from typing import Annotated

from generator.language import point, setting
from generator.language.roles import NonNegativeFloat, NonNegativeInt, PositiveInt

TOP = 20  # likeliest tokens that a request may ask for


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of a request are sampled."""

    max_tokens: PositiveInt = 128  # tokens to generate at most
    temperature: NonNegativeFloat = 0.0  # divides the logits; 0: always the likeliest token
    top_k: NonNegativeInt = 0  # sample from this many likeliest tokens; 0: from all
    top_p: Annotated[float, 1e-6, 1] = 1.0  # sample from the fewest likeliest tokens with this total probability
    min_p: Annotated[float, 0, 1] = 0.0  # sample from tokens with at least this share of the likeliest's probability
    seed: int | None = None  # of the random numbers; default: another one for each request
    presence_penalty: Annotated[float, -100, 100] = 0.0  # subtracted from the logits of tokens generated before
    frequency_penalty: Annotated[float, -100, 100] = 0.0  # the same, for each occurrence
    # divides positive logits of all tokens so far, multiplies negative ones
    repetition_penalty: Annotated[float, 1e-3, 1e3] = 1.0
    ignore_eos: bool = False  # continue after an end-of-sequence token
    stop_token_ids: tuple[int, ...] = ()  # more tokens that end the sequence
    min_tokens: NonNegativeInt = 0  # tokens to generate before one may end the sequence
    logit_bias: dict[int, float] = dataclasses.field(default_factory=dict)  # added to the logits of these tokens
    logprobs: Annotated[int, 0, TOP] = 0  # likeliest tokens to return at each place
    prompt_logprobs: bool = False  # return log-probabilities of the prompt's tokens as well
    point("SamplingParams.fields")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Sizes of an engine."""

    max_sequences: Annotated[int, 1, 2**16] = 32  # sequences that run at a time
    queue: PositiveInt = 1024  # requests that may wait
    max_length: NonNegativeInt = 0  # tokens of the longest sequence with its prompt; 0: the context length of the model
    # tokens in a page; sequences share whole pages of a common prefix
    page_size: Annotated[int, 1, 2**16] = setting("page_size")
    kv_cache_tokens: NonNegativeInt = 0  # tokens in the KV cache; 0: those of max_sequences sequences, or what fits
    chunk: Annotated[int, 1, 2**16] = 256  # prompt tokens of a prefill step at most; decode steps run in between
    point("EngineSettings.fields")
