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
from pathlib import Path
from typing import Any, Literal

import tyro
import uvicorn
from prometheus_client import generate_latest
from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from generator.language.roles import (
    Answer,
    ByteTokenizer,
    Chat,
    Completion,
    Engine,
    EngineSettings,
    EngineThread,
    FileTokenizer,
    InputError,
    Refusal,
    ServeMetrics,
    as_json,
    default_draws,
    ending_with_messages,
    load_chat_template,
    load_ends,
    load_generation,
    load_to_serve,
    read_fields,
    refuse,
    tokenizer_to_serve,
    with_defaults,
)


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Serves a model by OpenAI's HTTP interface: a training run's, or that of a Hugging Face directory."""

    engine: tyro.conf.OmitArgPrefixes[EngineSettings]
    checkpoint_dir: str = ""  # of the training run
    hf: str = ""  # the Hugging Face directory
    tokenizer: str = ""  # path of a tokenizer.json, or bytes; "": the one that is kept with the model
    dtype: Literal["float32", "bfloat16"] | None = None  # of the computation; else as it was trained
    int8: bool = False  # kernels of layers in 8 bits
    mesh_tensor: int = 1  # devices that share the heads and the inner feed-forward
    host: str = "127.0.0.1"  # 0.0.0.0: for other machines too
    port: int = 8000  # 0: a free one
    model: str = __package__ or ""  # what clients call it
    api_key: str = ""  # that clients must have; "": the environment's SERVE_API_KEY, or none
    max_body: int = 4 * 2**20  # bytes of a request
    request_seconds: int = 30  # for a client to send a request
    drain_seconds: int = 60  # for what runs when SIGTERM comes


class Server:
    """Answers HTTP requests with what the engine makes of them."""

    def __init__(self, settings: ServeSettings, engine: EngineThread, tokenizer: ByteTokenizer | FileTokenizer):
        self.settings, self.engine, self.tokenizer = settings, engine, tokenizer
        self.metrics, self.config = ServeMetrics(engine.engine), engine.engine.config
        self.template = load_chat_template(tokenizer, settings.tokenizer or self.config.tokenizer)
        draws = default_draws(load_generation(self.config.tokenizer), sampled=True)
        self.active, self.draining, self.started = 0, False, int(time.time())  # active: answers that are being sent
        routes = [
            Route(
                "/v1/completions", functools.partial(self.answer, with_defaults(Completion, draws)), methods=["POST"]
            ),
            Route("/v1/chat/completions", functools.partial(self.answer, with_defaults(Chat, draws)), methods=["POST"]),
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
        try:
            prompts = await asyncio.to_thread(asked.encode, self.tokenizer, self.template)
        except InputError as error:  # a text, and no tokenizer
            raise Refusal(400, str(error), "prompt") from None
        size, most = self.config.vocab_size, self.engine.engine.settings.queue
        if wrong := [token for prompt in prompts for token in prompt if not 0 <= token < size]:
            raise Refusal(400, f"token {wrong[0]}: the vocabulary has {size}", "prompt")
        if len(prompts) * asked.n > most:
            raise Refusal(400, f"{len(prompts) * asked.n} choices: at most {most} at once", "n")
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        room = self.engine.engine.room
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
        if key and not hmac.compare_digest(given.encode("latin-1"), key.encode()):
            raise Refusal(401, "give the server's key: Authorization: Bearer KEY", code="invalid_api_key")

    async def models(self, http: requests.Request) -> Response:
        self.check_client(http)
        model = {"id": self.settings.model, "object": "model", "created": self.started, "owned_by": "owner"}
        return as_json({"object": "list", "data": [model | {"max_model_len": self.engine.engine.room}]})

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


@ending_with_messages()
def main() -> None:
    settings = tyro.cli(ServeSettings, prog=f"python -m {__package__}.serve")
    if min(settings.max_body, settings.request_seconds, settings.drain_seconds) < 1:
        raise InputError("--max-body, --request-seconds, --drain-seconds: must be at least 1")
    if not settings.model:
        raise InputError("--model: must be a name")
    try:
        listener = socket.create_server((settings.host, settings.port), backlog=4096)
    except (OSError, OverflowError, TypeError) as error:  # the last where the name is none
        raise InputError(f"--host {settings.host} --port {settings.port}: {error}: give others") from None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    source = settings.checkpoint_dir, settings.hf
    config, model, mesh = load_to_serve(*source, settings.dtype, settings.mesh_tensor, settings.int8)
    tokenizer = tokenizer_to_serve(settings.tokenizer, config.tokenizer)
    engine = Engine(config, model, load_ends(tokenizer, config.tokenizer), settings.engine, mesh)
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
