"""Fields of requests, as in OpenAI's API."""

import dataclasses
import hashlib
import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from generator.language import point
from generator.language.roles import (
    AnyTokenizer,
    ChatTemplate,
    Piece,
    SamplingParams,
    completion_logprobs,
)

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


Likeliest = Annotated[int, Meta(ge=0, le=20)]


StopText = Annotated[str, Meta(min_length=1, max_length=256)]


Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier"}  # have no effect on answers


# fields of OpenAI's that this server ignores, as clients can do without: each is logged once
UNSUPPORTED = {"parallel_tool_calls", "prediction", "prompt_cache_retention", "verbosity", "web_search_options"}


# fields that are refused unless they have these values, which ask for nothing
NEUTRAL = {
    "best_of": 1,
    "suffix": "",
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
}


CODES = {404: "unknown_url", 405: "method_not_supported", 429: "rate_limit_exceeded"}  # of OpenAI, by status


# of OpenAI, by the words of msgspec
CODES_OF_FIELDS = {
    "contains unknown field": "unknown_parameter",
    "missing required field": "missing_required_parameter",
    "Invalid enum value": "invalid_value",
    "`int` <=": "integer_above_max_value",
    "`int` >=": "integer_below_min_value",
    "`float` <": "decimal_above_max_value",
    "`float` >": "decimal_below_min_value",
    "`str` of length <=": "string_above_max_length",
    "`str` of length >=": "string_below_min_length",
    "`array` of length <=": "array_above_max_length",
    "`array` of length >=": "array_below_min_length",
    "`object` of length <=": "object_above_max_properties",
    "Expected `": "invalid_type",
}


def code_of_field(problem: str) -> str | None:
    """Returns the code of a field's error, from the words of msgspec."""
    return next((code for words, code in CODES_OF_FIELDS.items() if words in problem), None)


class Refusal(Exception):
    """An error response."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.status = status
        code = code or CODES.get(status)
        self.content = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def too_long(room: int, what: str, param: str) -> Refusal:
    """Returns the refusal of what does not fit into the context, in words and with a code that clients know."""
    problem = f"this model's maximum context length is {room} tokens, but {what}: shorten the {param} or the completion"
    return Refusal(400, problem, param, "context_length_exceeded")


def warn_ignored(field: str) -> None:
    """Says once for each field that it has no effect."""
    if field not in WARNED:
        WARNED.add(field)
        print(f"warning: requests have {field}, which this model or server does not support: ignored", file=sys.stderr)


WARNED = set[str]()  # of UNSUPPORTED, tools and reasoning_effort


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False
    continuous_usage_stats: bool = False  # usage so far in each chunk, as in vLLM
    include_obfuscation: bool = False  # accepted, but chunks are never padded


class Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of both kinds of request."""

    model: str = ""
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    logit_bias: Annotated[dict[Token, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=512)] = {}
    ignore_eos: bool = False
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] = []
    stop_token_ids: Annotated[list[Token], Meta(max_length=512)] = []
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    prompt_cache_key: str = ""
    cache_salt: str = ""
    point("Fields.fields")

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def salt(self, key: str) -> bytes:
        """Returns the salt of a request's cached prefixes, from its API key, cache_salt and prompt_cache_key."""
        parts = key, self.cache_salt, self.prompt_cache_key
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest() if any(parts) else b""

    @property
    def limit(self) -> int | None:
        """Returns how many tokens an answer may have; 0: none, the prompt is only scored; None: all that fit."""
        return self.max_completion_tokens or self.max_tokens

    def sampling(self, seed: int, room: int, vocab_size: int, special: dict[str, int]) -> SamplingParams:
        """Returns the settings of one choice of at most `room` tokens; stop strings may be `special` tokens."""
        same = "temperature", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos"
        point("Fields.sampling", same)
        ends = [special[stop] for stop in self.stops if stop in special]  # which do not appear in the text
        return SamplingParams(
            **{name: getattr(self, name) for name in (*same, "min_tokens", "logit_bias")},
            max_tokens=max(room if self.limit is None else min(self.limit, room), 1),
            stop_token_ids=(*self.stop_token_ids, *ends),
            top_k=min(max(self.top_k, 0), vocab_size),
            top_p=max(self.top_p, 1e-6),
            seed=seed,
            logprobs=self.likeliest or 0,
            prompt_logprobs=self.echo and self.likeliest is not None,
        )


def scored(prompt: list[int], sampling: SamplingParams) -> tuple[list[int], SamplingParams]:
    """Returns a request that scores a prompt, by sampling its last token for certain: one more may have no room.

    The token is the only one in `logit_bias`, which is empty if nothing comes before it.
    """
    certain = {"temperature": 0.0, "ignore_eos": True, "stop_token_ids": (), "min_tokens": 0}
    last = {prompt[-1]: 1e9} if len(prompt) > 1 else {}
    return prompt[:-1] or prompt, dataclasses.replace(sampling, **certain, logit_bias=last)


class Completion(Fields, kw_only=True):
    """A request to /v1/completions."""

    PREFIX, OBJECT, CHUNK, INPUT = "cmpl", "text_completion", "text_completion", "prompt"
    offered = ()  # tools

    prompt: str | list[str | int | list[int]]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = 16  # 0: only scores the prompt
    logprobs: Likeliest | None = None
    echo: bool = False

    @property
    def least(self) -> int:
        """Returns how many tokens of an answer there must be room for: all that may come."""
        return self.limit or 0

    @property
    def likeliest(self) -> int | None:
        """Returns how many of the likeliest tokens to return at each place; None: no log-probabilities."""
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        one = isinstance(self.prompt, str) or all(isinstance(part, int) for part in self.prompt)
        prompts: list[Any] = [self.prompt] if one else self.prompt
        if any(prompt == [] or isinstance(prompt, int) for prompt in prompts):
            raise Refusal(400, "prompt: give a text, token ids, or a list of either, none of them empty", "prompt")
        return prompts

    def encode(self, tokenizer: AnyTokenizer, template: ChatTemplate | None, room: int, most: int) -> list[list[int]]:
        """Tokenizes each prompt, with special tokens as such, as vLLM does.

        Refuses what cannot fit before it is tokenized.

        Args:
            room: tokens that fit into the context.
            most: upper bound on the bytes of so many tokens.
        """
        texts = [prompt for prompt in self.prompts if isinstance(prompt, str)]
        if any(len(text.encode()) > most for text in texts):
            raise too_long(room, f"the prompt has more than {most:,} bytes, more than so many tokens have", "prompt")
        return [tokenizer.encode_prompt(p) or [tokenizer.eos] if isinstance(p, str) else p for p in self.prompts]

    def describe(self, piece: Piece, tokenizer: AnyTokenizer) -> dict[str, Any]:
        """Formats a piece of a choice."""
        scores = completion_logprobs(piece.scores, tokenizer) if self.likeliest is not None else None
        return {"text": piece.text, "logprobs": scores}
