"""Access control and limits of connections: hosts, origins, timeouts."""

import asyncio
import contextlib
import hmac
import ipaddress
import re
import sys
import time
import traceback
import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec
from prometheus_client import Counter
from starlette import requests
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from generator.language.roles import AnswerTimeout, EngineFailed, QueueFull, Refusal, RequestError

LEFT_UNREAD = 2**20  # bytes of a body that are discarded after the answer


class HTTPProtocol(H11Protocol):
    """A connection of uvicorn that times out, after its keep-alive time, on slow request heads and slow readers too.

    Discards the rest of a body after the answer, up to a limit: closing at once could lose the answer. Beyond the limit
    it aborts, as closing would wait for the client to read.
    """

    late = 0  # bytes since the last answer ended

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.stalled = self.head = self.loop.call_later(self.timeout_keep_alive, transport.abort)

    def data_received(self, data: bytes) -> None:
        self.late += len(data)
        if self.cycle and self.cycle.response_complete and self.late > LEFT_UNREAD:
            self.transport.abort()
            return
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:  # the head is complete
            self.head.cancel()

    def on_response_complete(self) -> None:
        self.late = 0
        self.head.cancel()
        # uvicorn closes an idle connection after half of this time
        self.head = self.loop.call_later(2 * self.timeout_keep_alive, self.transport.abort)
        super().on_response_complete()
        if not self.cycle.response_complete:  # a pipelined request
            self.head.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled.cancel()

    def connection_lost(self, error: Exception | None) -> None:
        self.head.cancel()
        self.stalled.cancel()
        super().connection_lost(error)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


STATUSES = {QueueFull: 429, EngineFailed: 500, AnswerTimeout: 504}  # of the engine's errors


def as_refusal(error: Exception) -> Refusal:
    """Returns the refusal that tells a client of any error; prints those that are the server's own."""
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail)
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestError):
        return Refusal(400, str(error), error.field)
    if type(error) in STATUSES:
        return Refusal(STATUSES[type(error)], str(error))
    traceback.print_exception(error)
    return Refusal(500, "internal server error: see the server's log")


async def refuse(http: requests.Request, error: Exception) -> Response:
    """Formats any error as OpenAI does."""
    refusal = as_refusal(error)
    http.scope["state"]["refused"] = str(refusal)  # for the log
    return as_json(refusal.content, refusal.status, {"Retry-After": "1"} if refusal.status in (429, 503) else None)


def bearer_key(http: requests.Request, keys: tuple[str, ...]) -> str:
    """Returns which of these keys a request sends; "" if none."""
    scheme, _, sent = http.headers.get("authorization", "").partition(" ")
    is_key = [hmac.compare_digest(sent.strip().encode("latin-1"), key.encode()) for key in keys]
    return keys[is_key.index(True)] if any(is_key) and scheme.lower() == "bearer" else ""


def hostname(netloc: str) -> str:
    """Returns the host of HOST, HOST:PORT or [ADDRESS]:PORT; "" if invalid."""
    with contextlib.suppress(ValueError):
        return "" if "@" in netloc else urlsplit(f"//{netloc}").hostname or ""
    return ""


def gate(app: ASGIApp, hosts: set[str], origins: set[str], answers: Counter) -> ASGIApp:
    """Wraps the application: checks hosts and origins, gives each request an id, logs and counts answers."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        begun = time.monotonic()
        status = 499  # the client disconnected
        sent_id = headers.get("x-request-id", "")
        name = sent_id if re.fullmatch(r"[\w.-]{1,64}", sent_id, re.ASCII) else uuid.uuid4().hex
        scope["state"] = {"id": name}
        # where a request ends is uncertain (RFC 9112, 6.1): the connection is closed
        is_ambiguous = "transfer-encoding" in headers and (
            scope["http_version"] == "1.0" or "content-length" in headers
        )

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", name.encode()), *([(b"connection", b"close")] if is_ambiguous else [])]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            if is_ambiguous:
                raise Refusal(400, "Transfer-Encoding comes with Content-Length or in HTTP/1.0: leave it out")
            check_origin(headers, hosts, origins)
            await app(scope, receive, send_named)
        except Exception as error:
            response = await refuse(requests.Request(scope), error)
            if status == 499:  # no answer has begun
                await response(scope, receive, send_named)
        finally:
            answers.labels(status).inc()
            path = scope["raw_path"].decode("latin-1")
            if status >= 400 or path.startswith("/v1/"):
                now = time.strftime("%Y-%m-%dT%H:%M:%S")
                client = (scope["client"] or ("-",))[0]
                why = f" {scope['state']['refused'][:200]!r}" if "refused" in scope["state"] else ""
                took = f"{time.monotonic() - begun:.3f} s"
                print(f"{now} {status} {scope['method']} {path[:200]} {client} {name} {took}{why}", file=sys.stderr)

    return guarded


def check_origin(headers: Headers, hosts: set[str], origins: set[str]) -> None:
    """Refuses requests of foreign web pages.

    Against DNS rebinding, by which a page could read answers under a name of its own, only known names and IP addresses
    are allowed as hosts. Under these, a page's requests carry its origin. A probe may leave the host out in HTTP/1.0; a
    browser does not.
    """
    host = hostname(headers.get("host", ""))
    origin = headers.get("origin")
    if not ("*" in hosts or "host" not in headers or host in hosts or is_address(host)):
        raise Refusal(403, f"host {host!r} is not allowed: use another, or start the server with --allow-host NAME")
    same = origin and origin.partition("//")[2] == headers.get("host")
    if origin and not (same or "*" in origins or origin in origins):
        raise Refusal(403, f"origin {origin!r} is not allowed: start the server with --allow-origin {origin}")


def is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False
