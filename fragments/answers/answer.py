"""Answers over HTTP, whole or streamed."""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response

from generator.language import point
from generator.language.roles import (
    Chat,
    Choice,
    Completion,
    Job,
    Piece,
    Prompts,
    Server,
    StopString,
    as_json,
    as_refusal,
)


class Answer:
    """An answer, sent as it is generated: an ASGI application, like Starlette's responses."""

    def __init__(self, server: "Server", request: Completion | Chat, prompts: Prompts, salt: bytes, name: str):
        self.server, self.request, self.prompts, self.salt = server, request, prompts, salt
        self.begun = time.monotonic()
        self.choices = list[Choice]()
        self.is_scored = request.limit == 0
        kind = request.CHUNK if request.stream else request.OBJECT
        with point("Answer.model", server, request):
            model = server.settings.model
        self.head = {"id": f"{request.PREFIX}-{name}", "created": int(time.time()), "object": kind, "model": model}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        work, watch = asyncio.create_task(self.send(send)), asyncio.create_task(gone())
        self.server.active += 1
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.server.active -= 1
            for task in (work, watch):
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        unfinished = sum(choice.finish is None for choice in self.choices)
        self.server.metrics.finished.labels("cancelled").inc(unfinished)

    async def send(self, send: Any) -> None:
        with self.server.engine.job(self.prompts, self.salt) as job:
            stops = [StopString(stop) for stop in self.request.stops]
            self.choices = [Choice(x, self.server.tokenizer, stops) for x in await job.next()]
            point("Answer.choices", template=self.server.template)
            if self.request.stream:
                headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                async for event in self.stream(job):
                    await send({"type": "http.response.body", "body": b"data: %b\n\n" % event, "more_body": True})
                await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            else:
                pieces = [Piece(first=True) for _ in self.choices]
                async for index, piece in self.pieces(job):
                    pieces[index].extend(piece)
                response = await asyncio.to_thread(self.response, pieces)
                await response({"type": "http"}, None, send)

    def response(self, pieces: list[Piece]) -> Response:
        """Formats all choices; runs in a thread, as log-probabilities of many tokens take long."""
        choices = [self.choice(index, piece) for index, piece in enumerate(pieces)]
        return as_json(self.head | {"choices": choices, "usage": self.usage()})

    async def stream(self, job: Job) -> AsyncIterator[bytes]:
        options = self.request.stream_options
        try:
            async for index, piece in self.pieces(job):
                usage = self.usage() if options.continuous_usage_stats else None
                is_long = len(piece.scores) > 64  # as an echoed prompt, whose log-probabilities would block the loop
                choice = await asyncio.to_thread(self.choice, index, piece) if is_long else self.choice(index, piece)
                yield msgspec.json.encode(self.head | {"choices": [choice], "usage": usage})
            if options.include_usage:
                yield msgspec.json.encode(self.head | {"choices": [], "usage": self.usage()})
        except Exception as error:  # the answer has begun: an event tells what ended it
            yield msgspec.json.encode(as_refusal(error).content)

    async def pieces(self, job: Job) -> AsyncIterator[tuple[int, Piece]]:
        """Yields pieces with the index of their choice, and records metrics."""
        metrics = self.server.metrics
        firsts = {}
        metrics.prompt_tokens.inc(self.prompt_tokens)
        while any(choice.finish is None for choice in self.choices):
            index, count, finish = await job.next()
            choice = self.choices[index]
            now = time.monotonic()
            if choice.finish:
                continue  # by a stop string, before the engine was told
            if index not in firsts:
                firsts[index] = now
                metrics.first.observe(now - self.begun)
                if self.request.echo:
                    yield index, await asyncio.to_thread(choice.echo, self.is_scored)
            count = 0 if self.is_scored else count
            metrics.tokens.inc(count - len(choice.offsets))
            yield index, choice.advance(count, finish)
            if choice.finish:
                metrics.finished.labels(choice.finish).inc()
                if count > 1:
                    metrics.each.observe((now - firsts[index]) / (count - 1))
                self.server.engine.calls.put(functools.partial(self.server.engine.cancel, [choice.request]))

    def choice(self, index: int, piece: Piece) -> dict[str, Any]:
        described = self.request.describe(piece, self.server.tokenizer)
        choice = {"index": index, **described, "finish_reason": piece.finish}
        ids = {"token_ids": [score.token for score in piece.scores]}
        return choice | ids if self.request.return_token_ids else choice

    @property
    def prompt_tokens(self) -> int:
        prompts = self.prompts[:: self.request.n]
        return sum(len(prompt) + self.is_scored * len(sampling.logit_bias) for prompt, sampling in prompts)

    def usage(self) -> dict[str, Any]:
        prompt = self.prompt_tokens
        completion = sum(len(choice.offsets) for choice in self.choices)
        cached = {"cached_tokens": sum(choice.request.cached for choice in self.choices[:: self.request.n])}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return usage | {"prompt_tokens_details": cached}
