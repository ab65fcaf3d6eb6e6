"""Serving over HTTP, by OpenAI's interface."""

import asyncio
import contextlib
import dataclasses
import functools
import hmac
import os
import resource
import secrets
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import jax
import msgspec
import tyro
import uvicorn
from flax import nnx
from prometheus_client import generate_latest
from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from generator.language.roles import (
    ByteTokenizer,
    Chat,
    Choice,
    Completion,
    Config,
    Decoder,
    Engine,
    EngineSettings,
    EngineThread,
    FileTokenizer,
    InputError,
    Job,
    Piece,
    Refusal,
    Sampling,
    ServeMetrics,
    ending_with_messages,
    load_chat_template,
    load_checkpoint,
    load_hf,
    load_tokenizer,
    make_mesh,
    read_fields,
)


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Serves a model by OpenAI's HTTP interface: a training run's, or that of a Hugging Face directory."""

    engine: tyro.conf.OmitArgPrefixes[EngineSettings]
    checkpoint_dir: str = ""  # of the training run
    hf: str = ""  # the Hugging Face directory
    dtype: Literal["float32", "bfloat16"] | None = None  # of the computation; else as it was trained
    host: str = "127.0.0.1"  # 0.0.0.0: for other machines too
    port: int = 8000  # 0: a free one
    model: str = __package__ or ""  # what clients call it
    api_key: str = ""  # that clients must have; "": the environment's SERVE_API_KEY, or none
    max_body: int = 4 * 2**20  # bytes of a request
    request_seconds: int = 30  # for a client to send a request
    drain_seconds: int = 60  # for what runs when SIGTERM comes


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


async def refuse(_: requests.Request, error: Exception) -> Response:
    """Any error in OpenAI's form."""
    if isinstance(error, HTTPException):
        error = Refusal(error.status_code, error.detail)
    if not isinstance(error, Refusal):
        error = Refusal(500, "an error of the server: its log says which")
    return as_json(error.content, error.status, {"Retry-After": "1"} if error.status in (429, 503) else None)


class Answer:
    """An answer, sent as the engine makes it: an application of ASGI, as Starlette's responses are."""

    def __init__(self, server: "Server", asked: Completion | Chat, wanted: list[tuple[list[int], Sampling]]):
        self.server, self.asked, self.wanted = server, asked, wanted
        self.begun, self.choices = time.monotonic(), list[Choice]()
        self.head = {"id": f"{asked.PREFIX}-{uuid.uuid4().hex}", "created": int(time.time())}
        self.head |= {"object": asked.CHUNK if asked.stream else asked.OBJECT, "model": server.settings.model}

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
        with self.server.engine.job(self.wanted) as job:
            self.choices = [Choice(x, self.server.tokenizer, self.asked.stops) for x in await job.next()]
            if self.asked.stream:
                headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                async for event in self.stream(job):
                    await send({"type": "http.response.body", "body": b"data: %b\n\n" % event, "more_body": True})
                await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            else:
                whole = [Piece(first=True) for _ in self.choices]
                async for index, piece in self.pieces(job):
                    whole[index].extend(piece)
                told = [self.choice(index, piece) for index, piece in enumerate(whole)]
                response: Response = as_json(self.head | {"choices": told, "usage": self.usage()})
                await response({"type": "http"}, None, send)

    async def stream(self, job: Job) -> AsyncIterator[bytes]:
        options = self.asked.stream_options
        try:
            async for index, piece in self.pieces(job):
                usage = self.usage() if options.continuous_usage_stats else None
                yield msgspec.json.encode(self.head | {"choices": [self.choice(index, piece)], "usage": usage})
            if options.include_usage:
                yield msgspec.json.encode(self.head | {"choices": [], "usage": self.usage()})
        except Refusal as error:
            yield msgspec.json.encode(error.content)

    async def pieces(self, job: Job) -> AsyncIterator[tuple[int, Piece]]:
        """What there is to tell, by the index of its choice; measures it."""
        metrics, firsts = self.server.metrics, {}
        metrics.prompt_tokens.inc(self.prompt_tokens)
        while any(choice.finish is None for choice in self.choices):
            index, count, finish = await job.next()
            choice, now = self.choices[index], time.monotonic()
            if choice.finish:
                continue  # by a stop string, before the engine knew
            if index not in firsts:
                firsts[index] = now
                metrics.first.observe(now - self.begun)
                if self.asked.echo:
                    yield index, choice.echo()
            metrics.tokens.inc(count - len(choice.offsets))
            yield index, choice.advance(count, finish)
            if choice.finish:
                metrics.finished.labels(choice.finish).inc()
                if count > 1:
                    metrics.each.observe((now - firsts[index]) / (count - 1))
                self.server.engine.calls.put(functools.partial(self.server.engine.cancel, [choice.request]))

    def choice(self, index: int, piece: Piece) -> dict[str, Any]:
        told = {"index": index, **self.asked.describe(piece, self.server.tokenizer), "finish_reason": piece.finish}
        ids = {"token_ids": [score.token for score in piece.scores]}
        return told | ids if self.asked.return_token_ids else told

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt, _ in self.wanted[:: self.asked.n])

    def usage(self) -> dict[str, Any]:
        prompt, completion = self.prompt_tokens, sum(len(choice.offsets) for choice in self.choices)
        cached = {"cached_tokens": sum(choice.request.cached for choice in self.choices[:: self.asked.n])}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return usage | {"prompt_tokens_details": cached}


class Server:
    """Answers HTTP requests with what the engine makes of them."""

    def __init__(self, settings: ServeSettings, engine: EngineThread, tokenizer: ByteTokenizer | FileTokenizer):
        self.settings, self.engine, self.tokenizer = settings, engine, tokenizer
        self.metrics, self.config = ServeMetrics(engine.engine), engine.engine.config
        self.template = load_chat_template(tokenizer, self.config.tokenizer)
        self.active, self.draining, self.started = 0, False, int(time.time())  # active: answers that are being sent
        routes = [
            Route("/v1/completions", functools.partial(self.answer, Completion), methods=["POST"]),
            Route("/v1/chat/completions", functools.partial(self.answer, Chat), methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/health", self.health),
            Route("/metrics", self.numbers),
            Route("/", self.page),
        ]
        handlers = {error: refuse for error in (Refusal, HTTPException, Exception)}
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    async def answer(self, kind: type[Completion | Chat], http: requests.Request) -> Answer:
        self.check_client(http)
        if self.draining:
            raise Refusal(503, "the server is about to end: ask another")
        asked = read_fields(await self.read_body(http), kind)
        if asked.model not in ("", name := self.settings.model):
            raise Refusal(404, f"there is no model {asked.model!r}: ask {name!r}", "model", "model_not_found")
        prompts = await asyncio.to_thread(asked.encode, self.tokenizer, self.template)
        size, most = self.config.vocab_size, self.engine.engine.settings.queue
        if wrong := [token for prompt in prompts for token in prompt if not 0 <= token < size]:
            raise Refusal(400, f"token {wrong[0]}: the vocabulary has {size}", "prompt")
        if len(prompts) * asked.n > most:
            raise Refusal(400, f"{len(prompts) * asked.n} choices: at most {most} at once", "n")
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        room = self.config.context_length
        wanted = [(p, asked.sampling(seed + i, room - len(p), size)) for p in prompts for i in range(asked.n)]
        return Answer(self, asked, wanted)

    async def read_body(self, http: requests.Request) -> bytes:
        """The JSON of a request. What is not declared as JSON is refused, as any page may make a browser send it."""
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "send JSON, with Content-Type: application/json")
        content, most, seconds = bytearray(), self.settings.max_body, self.settings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                async for part in http.stream():
                    content += part
                    if len(content) > most:
                        raise Refusal(413, f"the request has more than {most:,} bytes")
        except TimeoutError:
            raise Refusal(408, f"the request took more than {seconds} seconds to come") from None
        except requests.ClientDisconnect:
            raise Refusal(400, "the request ended before its end") from None  # nobody reads it
        return bytes(content)

    def check_client(self, http: requests.Request) -> None:
        key = self.settings.api_key or os.environ.get("SERVE_API_KEY", "")
        given = http.headers.get("authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            raise Refusal(401, "give the server's key: Authorization: Bearer KEY", code="invalid_api_key")

    async def models(self, http: requests.Request) -> Response:
        self.check_client(http)
        model = {"id": self.settings.model, "object": "model", "created": self.started, "owned_by": "owner"}
        return as_json({"object": "list", "data": [model | {"max_model_len": self.config.context_length}]})

    async def health(self, _: requests.Request) -> Response:
        well = not (self.draining or self.engine.failed)
        return as_json({"status": "ok" if well else "ending"}, 200 if well else 503)

    async def numbers(self, _: requests.Request) -> Response:
        return Response(generate_latest(self.metrics.registry), media_type="text/plain; version=0.0.4")

    async def page(self, _: requests.Request) -> Response:
        return HTMLResponse(Path(__file__).with_name("page.html").read_text())

    async def run(self, listener: socket.socket) -> None:
        """Serves until the engine fails, or SIGTERM or SIGINT comes, after which what runs has time to end."""
        waits = {"timeout_graceful_shutdown": 5, "timeout_keep_alive": self.settings.request_seconds}
        options = {"http": HTTPProtocol, "lifespan": "off", "log_level": "warning", "backlog": 4096}
        http = uvicorn.Server(uvicorn.Config(self.app, **waits, **options))

        def drain(*_: Any) -> None:  # a second signal waits for nothing
            http.should_exit, self.draining = self.draining, True

        http.handle_exit = drain
        serving = asyncio.create_task(http.serve([listener]))
        while not (serving.done() or self.draining or self.engine.failed):
            await asyncio.sleep(0.1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_seconds):
                while self.active and not (http.should_exit or self.engine.failed):
                    await asyncio.sleep(0.1)
        http.should_exit = True
        await serving


class HTTPProtocol(H11Protocol):
    """Closes a connection that sends no whole head of a request in time, as uvicorn does not."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.timeout_keep_alive, lambda: None if self.cycle else transport.close())


def load_model(settings: ServeSettings) -> tuple[Config, Decoder]:
    """From the one directory that is given, to compute in the dtype that is given."""
    hf, folder = settings.hf, settings.checkpoint_dir
    if bool(hf) == bool(folder):
        raise InputError("give --checkpoint-dir, or --hf")
    config, model = load_hf(hf) if hf else load_checkpoint(folder, make_mesh())
    config = dataclasses.replace(config, dtype=settings.dtype or config.dtype)
    abstract = jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))
    return config, jax.tree.unflatten(jax.tree.structure(abstract), jax.tree.leaves(model))


@ending_with_messages()
def main() -> None:
    settings = tyro.cli(ServeSettings, prog=f"python -m {__package__}.serve")
    if min(settings.max_body, settings.request_seconds, settings.drain_seconds) < 1:
        raise InputError("--max-body, --request-seconds, --drain-seconds: must be at least 1")
    try:
        listener = socket.create_server((settings.host, settings.port), backlog=4096)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {settings.host} --port {settings.port}: {error}: give others") from None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    config, model = load_model(settings)
    tokenizer = load_tokenizer(config.tokenizer)
    engine = Engine(config, model, tokenizer.eos, settings.engine)
    for line in engine.warm_up():
        print(f"compiled {line}", flush=True)

    async def serve() -> bool:
        thread = EngineThread(engine)
        thread.start()
        host, port = listener.getsockname()[:2]
        print(f"{settings.model} at http://{host}:{port}", flush=True)
        await Server(settings, thread, tokenizer).run(listener)
        thread.calls.put(None)
        thread.join(5)
        return thread.failed

    sys.exit(asyncio.run(serve()))


if __name__ == "__main__":
    main()
