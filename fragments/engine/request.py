"""What an engine is asked: its sizes, and a text to be continued."""

import dataclasses

from generator.language import setting
from generator.language.roles import Sampling, page_digest


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Sizes of an engine."""

    max_rows: int = 32  # requests that run at a time
    queue: int = 1024  # requests that wait at most
    max_length: int = 0  # tokens of the longest text with its prompt; 0: the context that the model was made for
    page_size: int = setting("page_size")  # tokens in a page; texts share whole pages that they begin with
    cache_tokens: int = 0  # tokens that all pages have room for; 0: as many as max_rows texts have, or as fit
    int8_pages: bool = False  # keys and values in 8 bits: half of what bfloat16 takes of the pages, and of reading them
    chunk: int = 256  # tokens of prompts in a step, between which running texts go on
    guesses: int = 0  # tokens that a step checks of each text, beside the one it draws, where the text repeats itself


class QueueFull(Exception):
    """As many requests wait as may."""


@dataclasses.dataclass(eq=False)
class Request:
    """A text that is continued. The engine changes it, and nobody else."""

    prompt: list[int]
    sampling: Sampling
    tokens: list[int] = dataclasses.field(default_factory=list)  # added so far, with the one that ended it
    logprobs: list[float] = dataclasses.field(default_factory=list)  # of each, in nats, by the model as it is
    top_logprobs: list[dict[int, float]] = dataclasses.field(default_factory=list)  # of each place: the likeliest
    prompt_logprobs: list[float] = dataclasses.field(default_factory=list)  # of the prompt's, but the first
    prompt_top_logprobs: list[dict[int, float]] = dataclasses.field(default_factory=list)
    finish: str | None = None  # "stop" (by a token), "length", "cancelled"; None while it goes on
    cached: int = 0  # tokens of the prompt whose pages were there already
    slot: int = -1  # its row of the texts on the device; -1 while it waits
    pages: list[int] = dataclasses.field(default_factory=list)
    root: bytes = b""  # before the digest of its first page: texts of different roots share no pages
    digests: list[bytes] = dataclasses.field(default_factory=list)  # of its full pages
    biases: list[tuple[int, float, int]] = dataclasses.field(default_factory=list)  # as `Biases` has them
    drawn: int = 0  # tokens that it has once the steps under way are done
    computed: int = 0  # those of them whose keys are in pages then
    reading: bool = False  # whether that is less than what it came with
    seen: dict[tuple[int, ...], int] = dataclasses.field(default_factory=dict)  # what the last of some tokens led to
    searched: int = 1  # tokens of the text that are in `seen`

    @property
    def text(self) -> list[int]:
        """The prompt and what was added."""
        return self.prompt + self.tokens

    def all_ends(self, ends: set[int]) -> set[int]:
        """The tokens that end it, where `ends` end a text that asks for nothing else."""
        return {*self.sampling.stop_token_ids, *(() if self.sampling.ignore_eos else ends)}

    def next_digest(self, text: list[int], size: int) -> bytes:
        """Of the page after those whose digests there are."""
        start = len(self.digests) * size
        return page_digest(self.digests[-1] if self.digests else self.root, text[start : start + size])

    def add(self, tokens: list[int], logprobs: list[float], tops: list[dict[int, float]], ends: set[int]) -> str | None:
        """Takes what a step brought, up to a token that ends the text. How it ends, if it does."""
        ends = self.all_ends(ends)
        found = [place for place, token in enumerate(tokens) if token in ends]
        count = found[0] + 1 if found else len(tokens)
        self.tokens += tokens[:count]
        self.logprobs += logprobs[:count]
        self.top_logprobs += tops[:count]
        self.computed, self.drawn = self.computed + count - 1, self.drawn + count - 1  # the first is in them already
        full = len(self.tokens) == self.sampling.max_tokens
        return "stop" if found else "length" if full else None
