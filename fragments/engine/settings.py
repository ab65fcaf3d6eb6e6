"""Settings of an engine and of its requests."""

import dataclasses

from generator.language import point, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of a request are sampled."""

    max_tokens: int = 128  # tokens to generate at most
    temperature: float = 0.0  # divides the logits; 0: always the likeliest token
    top_k: int = 0  # sample from this many likeliest tokens; 0: from all
    top_p: float = 1.0  # sample from the fewest likeliest tokens with this total probability
    min_p: float = 0.0  # sample from tokens with at least this share of the likeliest one's probability
    seed: int | None = None  # of the random numbers; default: another one for each request
    presence_penalty: float = 0.0  # subtracted from the logits of tokens generated before
    frequency_penalty: float = 0.0  # the same, for each occurrence
    repetition_penalty: float = 1.0  # divides positive logits of all tokens so far, multiplies negative ones
    ignore_eos: bool = False  # continue after an end-of-sequence token
    stop_token_ids: tuple[int, ...] = ()  # more tokens that end the sequence
    min_tokens: int = 0  # tokens to generate before one may end the sequence
    logit_bias: dict[int, float] = dataclasses.field(default_factory=dict)  # added to the logits of these tokens
    logprobs: int = 0  # likeliest tokens to return at each place, at most 20
    prompt_logprobs: bool = False  # return log-probabilities of the prompt's tokens as well
    point("SamplingParams.fields")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Sizes of an engine."""

    max_sequences: int = 32  # sequences that run at a time
    queue: int = 1024  # requests that may wait
    max_length: int = 0  # tokens of the longest sequence with its prompt; 0: the context length of the model
    page_size: int = setting("page_size")  # tokens in a page; sequences share whole pages of a common prefix
    kv_cache_tokens: int = 0  # tokens that the KV cache holds; 0: as many as max_sequences sequences have, or as fit
    chunk: int = 256  # prompt tokens of a prefill step at most; decode steps run in between
    point("EngineSettings.fields")
