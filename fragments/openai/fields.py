"""What a client may ask for, in OpenAI's words."""

import re
import typing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from generator.language.roles import (
    ByteTokenizer,
    ChatTemplate,
    FileTokenizer,
    Piece,
    Sampling,
    chat_logprobs,
    completion_logprobs,
)

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


Likeliest = Annotated[int, Meta(ge=0, le=20)]


StopText = Annotated[str, Meta(min_length=1, max_length=256)]


IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}  # change no answer


# what is refused, but where it asks for nothing
NEUTRAL = {"best_of": 1, "suffix": "", "logit_bias": {}, "response_format": {"type": "text"}, "tools": []}


class Refusal(Exception):
    """What a client is told in place of an answer."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.status = status
        self.content = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False
    continuous_usage_stats: bool = False  # the usage so far in each chunk, as in vLLM
    include_obfuscation: bool = False  # no chunk is padded, whatever is said


class Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What both kinds of request have."""

    model: str = ""
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    ignore_eos: bool = False
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] = []
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def sampling(self, seed: int, room: int, vocab_size: int) -> Sampling:
        """Of one choice, after whose prompt there is room for so many tokens."""
        same = "temperature", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos"
        return Sampling(
            **{name: getattr(self, name) for name in same},
            max_tokens=self.max_completion_tokens or self.max_tokens or max(room, 1),
            top_k=min(max(self.top_k, 0), vocab_size),
            top_p=max(self.top_p, 1e-6),
            seed=seed % 2**31,
            logprobs=self.likeliest or 0,
            prompt_logprobs=self.echo and self.likeliest is not None,
        )


class Completion(Fields, kw_only=True):
    """Of /v1/completions."""

    PREFIX, OBJECT, CHUNK = "cmpl", "text_completion", "text_completion"

    prompt: str | list[str | int | list[int]]
    max_tokens: Count | None = 16
    logprobs: Likeliest | None = None
    echo: bool = False

    @property
    def likeliest(self) -> int | None:
        """The likeliest tokens to give with each token, None for no log-probabilities at all."""
        return self.logprobs

    def encode(self, tokenizer: ByteTokenizer | FileTokenizer, template: ChatTemplate | None) -> list[list[int]]:
        """The tokens of each prompt; special tokens in a text are read as such, as vLLM does."""
        one = isinstance(self.prompt, str) or all(isinstance(part, int) for part in self.prompt)
        prompts = [self.prompt] if one else self.prompt
        if any(prompt == [] or isinstance(prompt, int) for prompt in prompts):
            raise Refusal(400, "prompt: give a text, tokens, or a list of either, and no empty list", "prompt")
        return [tokenizer.encode_prompt(p) or [tokenizer.eos] if isinstance(p, str) else p for p in prompts]

    def describe(self, piece: Piece, tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
        """What a choice says of a piece."""
        scores = completion_logprobs(piece.scores, tokenizer) if self.likeliest is not None else None
        return {"text": piece.text, "logprobs": scores}


class Part(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    name: str = ""


class Chat(Fields, kw_only=True):
    """Of /v1/chat/completions."""

    PREFIX, OBJECT, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"
    echo = False

    messages: Annotated[list[Message], Meta(min_length=1)]
    logprobs: bool = False
    top_logprobs: Likeliest = 0

    @property
    def likeliest(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    def encode(self, tokenizer: ByteTokenizer | FileTokenizer, template: ChatTemplate | None) -> list[list[int]]:
        if template is None:
            raise Refusal(400, "the tokenizer has no chat template: ask /v1/completions", "messages")
        parts = [x.content if isinstance(x.content, list) else [Part("text", x.content)] for x in self.messages]
        texts = ["".join(part.text for part in content) for content in parts]
        messages = [{"role": x.role, "content": text} for x, text in zip(self.messages, texts, strict=True)]
        try:
            return [template.encode(messages)]
        except Exception as error:  # whatever Jinja makes of a template that these messages do not fit
            raise Refusal(400, f"the chat template does not take these messages: {error}", "messages") from None

    def describe(self, piece: Piece, tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
        scores = chat_logprobs(piece.scores, tokenizer) if self.likeliest is not None else None
        text = {"role": "assistant", "content": piece.text} if piece.first else {"content": piece.text}
        return {"delta" if self.stream else "message": text, "logprobs": scores}


def with_defaults(kind: type[Completion | Chat], defaults: dict[str, float]) -> type[Completion | Chat]:
    """The same kind of request, with other values for fields that a client leaves out."""
    types = typing.get_type_hints(kind, include_extras=True)
    fields = [(name, types[name], value) for name, value in defaults.items()]
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), kw_only=True, forbid_unknown_fields=True)


def read_fields(content: bytes, kind: type[Completion | Chat]) -> Completion | Chat:
    """A request from its JSON, as a Completion or a Chat; what is null is as if it was left out."""
    try:
        found = msgspec.json.decode(content)
        if isinstance(found, dict):
            told = {key: x for key, x in found.items() if x is not None and key not in IGNORED}
            found = {key: x for key, x in told.items() if key not in NEUTRAL or x != NEUTRAL[key]}
        return msgspec.convert(found, kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        param = re.search(r"(?:\$\.|field `)(\w+)", str(error))
        raise Refusal(400, str(error), param and param[1]) from None
