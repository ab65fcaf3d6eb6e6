"""Who may ask, and what a client may cost: hosts, origins, and time limits of connections."""

import asyncio
import contextlib
import ipaddress
import re
import socket
import sys
import time
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

from generator.language.roles import Refusal

LEFT_UNREAD = 2**20  # bytes that a client may send on after its answer


class HTTPProtocol(H11Protocol):
    """A connection of uvicorn, with limits that uvicorn does not have, by the time for which it keeps idle ones.

    The head of a request, and what is written, may take that time. What is left of a body after the answer is thrown
    away, as closing at once would take the answer from the client, but only up to a limit. Then it is aborted, as
    closing would wait for the client to read.
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
        if self.cycle and not self.cycle.response_complete:  # it has the whole head of a request
            self.head.cancel()

    def on_response_complete(self) -> None:
        self.late = 0
        self.head.cancel()
        # uvicorn closes it where nothing comes for half of this time
        self.head = self.loop.call_later(2 * self.timeout_keep_alive, self.transport.abort)
        super().on_response_complete()
        if not self.cycle.response_complete:  # the next request was there already
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


async def refuse(http: requests.Request, error: Exception) -> Response:
    """Any error in OpenAI's form."""
    if isinstance(error, HTTPException):
        error = Refusal(error.status_code, error.detail)
    if not isinstance(error, Refusal):
        error = Refusal(500, "an error of the server: its log says which")
    http.scope["state"]["refused"] = str(error)  # for the log
    return as_json(error.content, error.status, {"Retry-After": "1"} if error.status in (429, 503) else None)


def hostname(netloc: str) -> str:
    """The name of HOST, HOST:PORT or [ADDRESS]:PORT; "" where it is none."""
    with contextlib.suppress(ValueError):
        return "" if "@" in netloc else urlsplit(f"//{netloc}").hostname or ""
    return ""


def gate(app: ASGIApp, hosts: set[str], origins: set[str], answers: Counter) -> ASGIApp:
    """Around the application: lets known hosts and origins in, gives each request an id, logs and counts answers."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers, begun, status = Headers(scope=scope), time.monotonic(), 499  # none, as the client had gone
        given = headers.get("x-request-id", "")
        name = given if re.fullmatch(r"[\w.-]{1,64}", given, re.ASCII) else uuid.uuid4().hex
        scope["state"] = {"id": name}

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", name.encode())]}
            await send(message)

        try:
            check_origin(headers, hosts, origins)
            await app(scope, receive, send_named)
        except Refusal as error:
            response = await refuse(requests.Request(scope), error)
            await response(scope, receive, send_named)
        finally:
            answers.labels(status).inc()
            path = scope["raw_path"].decode("latin-1")
            if status >= 400 or path.startswith("/v1/"):
                now, client = time.strftime("%Y-%m-%dT%H:%M:%S"), (scope["client"] or ("-",))[0]
                why = f" {scope['state']['refused'][:200]!r}" if "refused" in scope["state"] else ""
                took = f"{time.monotonic() - begun:.3f} s"
                print(f"{now} {status} {scope['method']} {path[:200]} {client} {name} {took}{why}", file=sys.stderr)

    return guarded


def check_origin(headers: Headers, hosts: set[str], origins: set[str]) -> None:
    """Refuses what a web page has a browser send that is not meant to.

    A page may give a name of its own to this server's address, and so read the answers: only names that are known are
    let in, and addresses, which cannot be a page's name. Under a known name the page's requests have its origin.
    """
    host, origin = hostname(headers.get("host", "")), headers.get("origin")
    if not ("*" in hosts or host in hosts or is_address(host)):
        raise Refusal(403, f"{host!r} is no name of this server: give one, or start it with --allow-host NAME")
    same = origin and origin.partition("//")[2] == headers.get("host")
    if origin and not (same or "*" in origins or origin in origins):
        raise Refusal(403, f"pages of {origin!r} may not ask: start the server with --allow-origin {origin}")


def is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def own_names(host: str) -> set[str]:
    """What a server that listens at a host may be called without being told so."""
    return {"localhost", host.lower(), socket.gethostname().lower()}
