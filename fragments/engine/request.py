"""Requests, and the sizes of an engine."""

import dataclasses
import enum
import math

from generator.language import point
from generator.language.roles import EngineSettings, InputError, SamplingParams, field_problems, page_digest


def check_settings(settings: EngineSettings, context_length: int) -> int:
    """Returns the tokens of the longest sequence. Raises InputError that lists all that is wrong with the settings."""
    longest = settings.max_length or context_length
    problems = field_problems(settings)
    if not 2 <= longest <= context_length:  # a token of the prompt, and one of the answer
        problems.append(f"--max-length {longest}: must be from 2 to the context length, {context_length}")
    if problems:
        raise InputError("\n".join(problems))
    return longest


class RequestStatus(enum.Enum):
    """What a request does; those in PREFILL or DECODE are running."""

    WAITING = enum.auto()
    PREFILL = enum.auto()
    DECODE = enum.auto()
    FINISHED = enum.auto()


class RequestError(InputError):
    """A request that an engine can never serve.

    Attributes:
        field: the one at fault, of the request's sampling or its prompt; None if there are several.
    """

    def __init__(self, message: str, field: str | None):
        super().__init__(message)
        self.field = field


class QueueFull(Exception):
    """The queue of waiting requests is full."""


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt and its continuation, which only the engine changes."""

    prompt: list[int]
    sampling: SamplingParams
    tokens: list[int] = dataclasses.field(default_factory=list)  # generated so far, with the one that ended it
    logprobs: list[float] = dataclasses.field(default_factory=list)  # of each, in nats, by the unchanged logits
    top_logprobs: list[dict[int, float]] = dataclasses.field(default_factory=list)  # the likeliest at each place
    prompt_logprobs: list[float] = dataclasses.field(default_factory=list)  # of the prompt, without its first token
    prompt_top_logprobs: list[dict[int, float]] = dataclasses.field(default_factory=list)
    finish: str | None = None  # "stop" (by a token), "length", "cancelled"; None while it waits or runs
    cached: int = 0  # prompt tokens found in the KV cache
    slot: int = -1  # row of its tokens on the device
    pages: list[int] = dataclasses.field(default_factory=list)
    root: bytes = b""  # chained before the digest of its first page: requests with different roots share no pages
    digests: list[bytes] = dataclasses.field(default_factory=list)  # of its full pages
    biases: list[tuple[int, float, int]] = dataclasses.field(default_factory=list)  # columns of `Biases`
    length: int = 0  # of the sequence, once the steps in flight are done
    computed: int = 0  # tokens whose keys are in the KV cache by then
    status: RequestStatus = RequestStatus.WAITING
    ends: frozenset[int] = frozenset()  # tokens that end it
    max_length: int = 0  # of the sequence
    point("Request.fields")

    @property
    def sequence(self) -> list[int]:
        """Returns the tokens of the prompt and those generated."""
        return self.prompt + self.tokens

    def span(self, start: int, end: int) -> list[int]:
        """Returns the sequence's tokens from place `start` to before `end`."""
        first = len(self.prompt)
        return self.prompt[start:end] + self.tokens[max(start - first, 0) : max(end - first, 0)]

    def logit_biases(self) -> list[tuple[int, float, int]]:
        """Returns columns of `Biases`: those of its sampling, and those by which it does not end too early."""
        sampling = self.sampling
        biases = [(token, bias, sampling.max_tokens) for token, bias in sampling.logit_bias.items()]
        return biases + [(token, -math.inf, sampling.min_tokens) for token in self.ends if sampling.min_tokens]

    def next_digest(self, sequence: list[int], size: int) -> bytes:
        """Returns the digest of the first page that has none yet."""
        start = len(self.digests) * size
        return page_digest(self.digests[-1] if self.digests else self.root, sequence[start : start + size])

    def add(self, tokens: list[int], logprobs: list[float], tops: list[dict[int, float]]) -> str | None:
        """Appends the tokens of a step, up to one that ends the sequence; returns how it ended, or None."""
        ends = [place for place, token in enumerate(tokens) if token in self.ends]
        count = ends[0] + 1 if ends else len(tokens)
        self.tokens += tokens[:count]
        self.logprobs += logprobs[:count]
        self.top_logprobs += tops[:count]
        self.computed, self.length = self.computed + count - 1, self.length + count - 1  # both count the first already
        full = len(self.tokens) == self.sampling.max_tokens
        return "stop" if ends else "length" if full else None
