"""HTTP server with OpenAI's API."""

import asyncio
import concurrent.futures
import functools
import os
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import generate_latest
from starlette import requests
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from generator.language import point
from generator.language.roles import (
    STATUSES,
    Answer,
    AnyTokenizer,
    Chat,
    Completion,
    Engine,
    EngineThread,
    ExitCode,
    FileTokenizer,
    HTTPProtocol,
    InputError,
    Prompts,
    Refusal,
    RequestError,
    ServeMetrics,
    ServeSettings,
    as_json,
    bearer_key,
    default_sampling,
    fold_seed,
    gate,
    load_chat_template,
    load_ends,
    load_generation,
    load_to_serve,
    read_fields,
    refuse,
    scored,
    tokenizer_to_serve,
    too_long,
)

ANSWERED = {"/v1/completions": Completion, "/v1/chat/completions": Chat}


class Server:
    """Routes HTTP requests to the engine."""

    def __init__(self, settings: ServeSettings, engine: EngineThread, tokenizer: AnyTokenizer):
        self.settings, self.engine, self.tokenizer = settings, engine, tokenizer
        self.keys = settings.keys
        self.metrics = ServeMetrics(engine.engine)
        self.config = engine.engine.config
        self.template = load_chat_template(tokenizer, settings.tokenizer or self.config.tokenizer)
        self.special = {text: token for token, text in tokenizer.special.items()}
        is_file = isinstance(tokenizer, FileTokenizer)
        longest = max(len(text.encode()) for text in tokenizer.tokenizer.get_vocab()) if is_file else 1
        self.most_bytes = engine.engine.room * longest  # upper bound for a text that fits into the context
        self.draining = False
        self.started = int(time.time())
        self.active = 0  # answers in progress
        self.unanswered = 0  # bytes of request bodies being received or tokenized
        # tokenize requests; one pool for each kind, so that a slow template does not block completions
        self.threads = {path: concurrent.futures.ThreadPoolExecutor(2) for path in ANSWERED}
        self.defaults = default_sampling(load_generation(self.config.tokenizer), sampled=True)
        routes = [
            *(Route(x, functools.partial(self.answer, kind), methods=["POST"]) for x, kind in ANSWERED.items()),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.models),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.numbers),
            Route("/", self.page),
        ]
        point("Server.routes", self, routes)
        hosts = {x.lower() for x in ("localhost", socket.gethostname(), settings.host, *settings.allow_host)}
        origins = settings.allow_origin
        around = [Middleware(gate, hosts, set(origins), self.metrics.answers)]
        if origins:
            named = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"], "expose_headers": ["x-request-id"]}
            around.append(Middleware(CORSMiddleware, allow_origins=origins, **named))
        handlers = dict.fromkeys((Refusal, HTTPException, RequestError, *STATUSES), refuse)
        self.app = Starlette(routes=routes, middleware=around, exception_handlers=handlers)

    async def answer(self, kind: type[Completion | Chat], http: requests.Request) -> Answer:
        key = self.check_client(http)
        if self.draining:
            raise Refusal(503, "the server is shutting down: use another")
        if not self.engine.ready.is_set():
            raise Refusal(503, "the server is still compiling: try again")
        content = bytearray()
        try:
            await self.read_body(http, content)
            prepared = functools.partial(self.prepare, kind, bytes(content))
            request, prompts = await asyncio.get_running_loop().run_in_executor(self.threads[http.url.path], prepared)
        finally:
            self.unanswered -= len(content)
        point("Server.prepared", self, request, prompts)
        return Answer(self, request, prompts, request.salt(key), http.state.id)

    def prepare(self, kind: type[Completion | Chat], content: bytes) -> tuple[Completion | Chat, Prompts]:
        """Parses and tokenizes a request; returns it with the prompt and sampling of each choice. May be slow."""
        request = read_fields(content, kind, self.defaults)
        size = self.config.vocab_size
        most = self.engine.engine.settings.queue
        room = self.engine.engine.room
        with point("Server.model", self, request):
            if request.model not in ("", name := self.settings.model):
                raise Refusal(404, f"there is no model {request.model!r}: use {name!r}", "model", "model_not_found")
        if (count := len(request.prompts) * request.n) > most:
            raise Refusal(400, f"{count} choices: at most {most} at once", "n")
        try:
            encoded = request.encode(self.tokenizer, self.template, room, self.most_bytes)
        except InputError as error:  # text without a tokenizer
            raise Refusal(400, str(error), "prompt") from None
        longest = max(map(len, encoded))
        if longest + request.least > room:
            sizes = f"{longest} in the {request.INPUT}, {request.least} in the completion"
            raise too_long(room, f"you requested {longest + request.least} tokens ({sizes})", request.INPUT)
        seed = None if request.seed is None else request.seed % 2**32
        prompts = []
        for place, prompt in enumerate(encoded):
            for choice in range(request.n):
                sampling = request.sampling(fold_seed(seed, place, choice), room - len(prompt), size, self.special)
                prompts.append((prompt, sampling))
        point("Server.prompts", self, request, prompts)
        return request, [scored(*pair) for pair in prompts] if request.limit == 0 else prompts

    async def read_body(self, http: requests.Request, content: bytearray) -> None:
        """Reads a body into `content`. Refuses other types than JSON, which any web page can make a browser send."""
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "send JSON, with Content-Type: application/json")
        most = self.settings.max_body
        seconds = self.settings.client_seconds
        too_large = Refusal(413, f"the request has more than {most:,} bytes")
        if int(http.headers.get("content-length", 0)) > most:
            raise too_large
        try:
            async with asyncio.timeout(seconds):
                async for part in http.stream():
                    content += part
                    self.unanswered += len(part)
                    if len(content) > most:
                        raise too_large
                    if self.unanswered > 16 * most:  # protects memory against many clients, or slow ones
                        raise Refusal(429, "too many large requests at once: try again")
        except TimeoutError:
            raise Refusal(408, f"the request took more than {seconds} seconds to arrive") from None
        except requests.ClientDisconnect:
            raise Refusal(400, "the client disconnected") from None  # only logged

    def check_client(self, http: requests.Request) -> str:
        """Returns the client's API key after checking it; "" if the server has no keys."""
        key = bearer_key(http, self.keys)
        if self.keys and not key:
            raise Refusal(401, "missing or wrong API key: send Authorization: Bearer KEY", code="invalid_api_key")
        return key

    async def models(self, http: requests.Request) -> Response:
        self.check_client(http)
        model = {"id": self.settings.model, "object": "model", "created": self.started, "owned_by": "owner"}
        models = {self.settings.model: model | {"max_model_len": self.engine.engine.room}}
        point("Server.models", self, models)
        if "name" not in http.path_params:
            return as_json({"object": "list", "data": [*models.values()]})
        if (name := http.path_params["name"]) not in models:
            raise Refusal(404, f"there is no model {name!r}", "model", "model_not_found")
        return as_json(models[name])

    async def health(self, _: requests.Request) -> Response:
        """Answers liveness probes: 200 unless the engine has failed."""
        failed = self.engine.failed
        return as_json({"status": "the engine failed" if failed else "ok"}, 503 if failed else 200)

    async def ready(self, _: requests.Request) -> Response:
        """Answers readiness probes: 200 if requests are accepted."""
        ready = self.engine.ready.is_set() and not (self.draining or self.engine.failed)
        return as_json({"status": "ok" if ready else "not ready"}, 200 if ready else 503)

    async def numbers(self, http: requests.Request) -> Response:
        self.check_client(http)
        return Response(generate_latest(self.metrics.registry), media_type="text/plain; version=0.0.4")

    async def page(self, _: requests.Request) -> Response:
        page = Path(__file__).with_name("page.html").read_text()
        return HTMLResponse(page.replace('name="chat"', 'name="chat" checked') if self.template else page)

    async def run(self, listener: socket.socket) -> None:
        """Serves until the engine fails or on SIGTERM or SIGINT, then lets running requests finish."""
        options = {"http": HTTPProtocol, "ws": "none", "lifespan": "off", "log_level": "warning", "backlog": 4096}
        options |= {"server_header": False, "timeout_keep_alive": self.settings.client_seconds}
        limits = uvicorn.Config(self.app, **options)
        http = uvicorn.Server(limits)

        def drain(*_: Any) -> None:  # a second signal exits at once
            http.should_exit = http.force_exit = self.draining
            self.draining = True

        http.handle_exit = drain
        serving = asyncio.create_task(http.serve([listener]))
        announced = False
        while not (serving.done() or self.draining or self.engine.failed):
            await asyncio.sleep(0.1)
            self.engine.watch(self.settings.step_seconds)
            if self.engine.ready.is_set() and not announced:
                host, port = listener.getsockname()[:2]
                print(f"{self.settings.model} at http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
                announced = True
        until = time.monotonic() + (1 if self.engine.failed else self.settings.drain_seconds)
        while self.active and time.monotonic() < until and not http.should_exit:
            await asyncio.sleep(0.1)
            self.engine.watch(self.settings.step_seconds)
        limits.timeout_graceful_shutdown = max(1, int(until - time.monotonic()))  # for clients to read the rest
        http.should_exit = True
        await serving


def load_engine(settings: ServeSettings) -> tuple[Engine, AnyTokenizer]:
    """Loads the model into an engine, which alone holds it: newer weights may replace these."""
    config, model, mesh = load_to_serve(settings)
    point("serve.loaded", settings, config, model, mesh)
    tokenizer = tokenizer_to_serve(settings.tokenizer, config.tokenizer)
    return Engine(config, model, load_ends(tokenizer, config.tokenizer), settings.engine, mesh), tokenizer


def run_server(settings: ServeSettings) -> None:
    """Serves until SIGTERM or SIGINT, or until the engine fails, which the exit code shows."""
    point("serve.start", settings)
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with point("serve.listen", settings, listener):
        try:
            listener.bind((settings.host, settings.port))  # connections are refused until there is a model
        except (OSError, OverflowError, TypeError) as error:  # TypeError: an invalid name
            raise InputError(f"--host {settings.host} --port {settings.port}: {error}: give others") from None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each connection
    engine, tokenizer = load_engine(settings)

    async def serve() -> EngineThread:
        thread = EngineThread(engine, settings.request_seconds)
        server = Server(settings, thread, tokenizer)
        thread.start()
        await server.run(listener)
        thread.end()
        return thread

    thread = asyncio.run(serve())
    point("serve.ended", engine, thread)
    if thread.is_alive():  # in a step, which cannot be interrupted
        sys.stdout.flush()
        os._exit(ExitCode.HUNG if thread.failed else 0)
    sys.exit(thread.failed)
