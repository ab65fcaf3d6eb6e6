"""What is told of a choice, in OpenAI's forms."""

import bisect
import dataclasses
import itertools
from typing import Any

from generator.language.roles import UNKNOWN, ByteTokenizer, FileTokenizer, Request, Stops, StopString, Text, ToolCalls


@dataclasses.dataclass
class TokenScore:
    """A token, and how likely it and others were in its place."""

    token: int
    offset: int  # characters before it
    logprob: float | None  # None: nothing is before it
    top: dict[int, float]


@dataclasses.dataclass
class Piece:
    """What there is to add to what was told of a choice."""

    text: str = ""
    scores: list[TokenScore] = dataclasses.field(default_factory=list)
    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of tools
    finish: str | None = None
    first: bool = False

    def extend(self, piece: "Piece") -> None:
        self.text += piece.text
        self.scores += piece.scores
        self.calls += piece.calls
        self.finish = piece.finish


class Choice:
    """One text of an answer, as it comes."""

    def __init__(
        self, request: Request, tokenizer: ByteTokenizer | FileTokenizer, stops: list[StopString], tools: bool
    ):
        """Begins a choice; `tools`: calls of tools are told apart from its text."""
        self.request, self.tokenizer, self.stops = request, tokenizer, Stops(stops)
        self.text = Text(tokenizer, request.prompt, [])
        self.tool_calls = ToolCalls() if tools else None
        self.offsets: list[int] = []  # characters before each token
        self.length = self.told = 0  # characters and tokens that have been told
        self.finish: str | None = None

    def echo(self) -> Piece:
        """The prompt, before anything else."""
        piece, prompt, request = Piece(), Text(self.tokenizer, [], []), self.request
        logprobs, tops = [None, *request.prompt_logprobs], [{}, *request.prompt_top_logprobs]
        for token, logprob, top in itertools.zip_longest(request.prompt, logprobs, tops):
            piece.scores.append(TokenScore(token, len(piece.text), logprob, top))
            piece.text += prompt.add(token)
        piece.text += prompt.end()
        self.length = len(piece.text)
        return piece

    def advance(self, count: int, finish: str | None) -> Piece:
        """What is told once there are `count` tokens; a token waits for its text."""
        piece, request = Piece(first=not self.offsets), self.request
        for token in request.tokens[len(self.offsets) : count]:
            self.offsets.append(self.length + len(piece.text) + len(self.stops.held))
            new = self.text.add(token)
            piece.text += self.stops.add(new) if len(self.offsets) > request.sampling.min_tokens else new
            if self.stops.found:
                break
        if finish and not self.stops.found:
            piece.text += self.stops.add(self.text.end()) + self.stops.held
        self.length += len(piece.text)
        piece.finish = self.finish = "stop" if self.stops.found else finish
        whole = self.finish and not self.stops.found
        until = len(self.offsets) if whole else bisect.bisect_left(self.offsets, self.length)
        for i in range(self.told, until):
            score = TokenScore(request.tokens[i], self.offsets[i], request.logprobs[i], request.top_logprobs[i])
            piece.scores.append(score)
        self.told = until
        if self.tool_calls:
            piece.text, piece.calls = self.tool_calls.add(piece.text, is_end=bool(self.finish))
            piece.finish = "tool_calls" if self.finish == "stop" and self.tool_calls.count else self.finish
        return piece


def completion_logprobs(scores: list[TokenScore], tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
    """As /v1/completions has them: lists, and dicts by text, where the likeliest of one text counts."""
    tops = [{**x.top, x.token: x.logprob} if x.logprob is not None else None for x in scores]
    return {
        "tokens": [tokenizer.decode([x.token]) for x in scores],
        "token_logprobs": [x.logprob for x in scores],
        "top_logprobs": [x and {tokenizer.decode([t]): x[t] for t in sorted(x, key=x.__getitem__)} for x in tops],
        "text_offset": [x.offset for x in scores],
    }


def chat_logprobs(scores: list[TokenScore], tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
    """As /v1/chat/completions has them; the bytes of a token that is no whole text are not known."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        text = tokenizer.decode([token])
        return {"token": text, "logprob": logprob, "bytes": None if UNKNOWN in text else list(text.encode())}

    found = [entry(x.token, x.logprob) | {"top_logprobs": [entry(*top) for top in x.top.items()]} for x in scores]
    return {"content": found, "refusal": None}
