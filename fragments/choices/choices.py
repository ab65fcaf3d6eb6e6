"""Choices of an answer, in OpenAI's formats."""

import bisect
import dataclasses
import itertools
from typing import Any

from generator.language import point
from generator.language.roles import (
    AnyTokenizer,
    Detokenizer,
    Request,
    Stops,
    StopString,
    has_text,
    token_bytes,
)


@dataclasses.dataclass
class TokenScore:
    """A token with its log-probability, and those of the likeliest in its place."""

    token: int
    offset: int  # characters before it
    logprob: float | None  # None for the first token of a prompt
    top: dict[int, float]
    content: bytes  # what it adds to the text


@dataclasses.dataclass
class Piece:
    """An increment of a choice."""

    text: str = ""
    scores: list[TokenScore] = dataclasses.field(default_factory=list)
    finish: str | None = None
    first: bool = False
    point("Piece.fields")

    def extend(self, piece: "Piece") -> None:
        self.text += piece.text
        self.scores += piece.scores
        self.finish = piece.finish
        point("Piece.extend", piece)


class Choice:
    """One choice of an answer, as it is generated."""

    def __init__(self, request: Request, tokenizer: AnyTokenizer, stops: list[StopString]):
        self.request = request
        self.tokenizer = tokenizer
        self.stops = Stops(stops)
        self.text = Detokenizer(tokenizer, request.prompt)
        self.offsets: list[int] = []  # characters before each token
        self.length = self.returned = 0  # characters and tokens returned so far
        self.finish: str | None = None
        point("Choice.start")

    def echo(self, is_scored: bool) -> Piece:
        """Returns the prompt, before anything else; the last token of one that is `scored` was sampled."""
        piece = Piece()
        self.text = Detokenizer(self.tokenizer, [])  # goes on with the answer: a prompt may end within a character
        request = self.request
        tokens = [*request.prompt, *(request.sampling.logit_bias if is_scored else ())]
        logprobs = [None, *request.prompt_logprobs, *request.logprobs][: len(tokens)]
        tops = [{}, *request.prompt_top_logprobs, *request.top_logprobs][: len(tokens)]
        for token, logprob, top in itertools.zip_longest(tokens, logprobs, tops):
            content = token_bytes(self.tokenizer, token)
            if not (piece.text or self.text.run) and has_text(self.tokenizer, token):  # the first one loses its space
                content = self.tokenizer.decode([token]).encode() if content[:1] == b" " else content
            piece.scores.append(TokenScore(token, len(piece.text), logprob, top, content))
            piece.text += self.text.add(token)
        if is_scored:
            piece.text += self.text.end()
        self.length = len(piece.text)
        return piece

    def advance(self, count: int, finish: str | None) -> Piece:
        """Returns what is new once there are `count` tokens; a token waits until its text is final."""
        piece = Piece(first=not self.offsets)
        request = self.request
        for token in request.tokens[len(self.offsets) : count]:
            self.offsets.append(self.length + len(piece.text) + len(self.stops.buffered))
            new = self.text.add(token)
            if len(self.offsets) > request.sampling.min_tokens:
                new = self.stops.add(new)
            piece.text += new
            if self.stops.matched:
                break
        if finish and self.offsets and not self.stops.matched:
            piece.text += self.stops.add(self.text.end()) + self.stops.buffered
        self.length += len(piece.text)
        piece.finish = self.finish = "stop" if self.stops.matched else finish
        is_complete = self.finish and not self.stops.matched
        until = len(self.offsets) if is_complete else bisect.bisect_left(self.offsets, self.length)
        for i in range(self.returned, until):
            token = request.tokens[i]
            scores = request.logprobs[i], request.top_logprobs[i], token_bytes(self.tokenizer, token)
            piece.scores.append(TokenScore(token, self.offsets[i], *scores))
        self.returned = until
        point("Choice.advanced", piece)
        return piece


def token_name(content: bytes) -> str:
    """Returns the text of a token, or "bytes:" and its bytes where they are not UTF-8, as OpenAI does."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def completion_logprobs(scores: list[TokenScore], tokenizer: AnyTokenizer) -> dict[str, Any]:
    """Formats log-probabilities for /v1/completions, by text; a second token with the same text goes by its id."""

    def by_text(score: TokenScore) -> dict[str, float]:
        logprobs = {token_name(score.content): score.logprob}
        for token in sorted(score.top, key=score.top.__getitem__, reverse=True):
            name = token_name(token_bytes(tokenizer, token))
            if token != score.token:
                logprobs[name if name not in logprobs else f"token_id:{token}"] = score.top[token]
        return logprobs

    return {
        "tokens": [token_name(x.content) for x in scores],
        "token_logprobs": [x.logprob for x in scores],
        "top_logprobs": [by_text(x) if x.logprob is not None else None for x in scores],
        "text_offset": [x.offset for x in scores],
    }


def chat_logprobs(scores: list[TokenScore], tokenizer: AnyTokenizer) -> dict[str, Any]:
    """Formats log-probabilities for /v1/chat/completions."""

    def entry(content: bytes, logprob: float | None) -> dict[str, Any]:
        return {"token": token_name(content), "logprob": logprob, "bytes": list(content)}

    def others(score: TokenScore) -> list[dict[str, Any]]:
        return [entry(token_bytes(tokenizer, token), logprob) for token, logprob in score.top.items()]

    entries = [entry(x.content, x.logprob) | {"top_logprobs": others(x)} for x in scores]
    return {"content": entries, "refusal": None}
