"""Replicas of a server behind Ray Serve.

Source: Moritz et al. 2018, arXiv 1712.05889 (Ray); Karger et al. 1997, STOC, p. 654 (consistent hashing).
"""

import asyncio
import dataclasses
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import ray
import tyro
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import RayServeException
from starlette import requests
from starlette.responses import JSONResponse, Response, StreamingResponse

from generator.language import point, requires, setting
from generator.language.roles import InputError, ServeSettings, ending_with_messages

requires("serve/serve")

BY_SESSION = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
# headers that belong to one connection, and are not passed on
OF_CONNECTION = {*"connection content-length date expect keep-alive server transfer-encoding".split()}
# runs a module in a process that is killed if the one that started it is gone: PR_SET_PDEATHSIG
ENDS_WITH_PARENT = """
import ctypes, runpy, sys
ctypes.CDLL(None).prctl(1, 9)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""
LOST = "no replica has room, or the one that had the request is gone: send it again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """Serves with replicas on the Ray cluster of RAY_ADDRESS, else on this machine, at the address of one server."""

    server: tyro.conf.Positional[tuple[str, ...]]  # after --: the flags of python -m PACKAGE.serve
    replicas: int = 2
    cpus: float = 1  # that Ray sets aside for a replica
    gpus: float = setting("replica_gpus")  # the same, GPUs
    tpus: float = setting("replica_tpus")  # the same, TPU chips


class Replica:
    """A server on a free port of its machine. Either ends with the other, and Ray starts both again."""

    async def __init__(self, command: list[str], folder: str, environment: dict[str, str]):
        self.server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ENDS_WITH_PARENT, *command),
            cwd=folder if os.path.isdir(folder) else None,  # not on this node: only absolute paths can be read here
            env=os.environ | environment,
            stdout=asyncio.subprocess.PIPE,
        )
        url = None
        while not url and (line := await self.server.stdout.readline()):
            print(line.decode(), end="", flush=True)
            url = re.search(rb" at (http://127\.0\.0\.1:\d+)$", line.rstrip())
        if not url:
            raise RuntimeError(f"the server ended with code {await self.server.wait()}, see above")
        limits = {"connector": aiohttp.TCPConnector(limit=0), "timeout": aiohttp.ClientTimeout(total=None)}
        self.url = url[1].decode()
        self.client = aiohttp.ClientSession(auto_decompress=False, **limits)
        self.name = serve.get_replica_context().replica_id.unique_id
        self.end = asyncio.create_task(self.end_with_it())

    async def end_with_it(self) -> None:
        async for line in self.server.stdout:
            print(line.decode(), end="", flush=True)
        os._exit(await self.server.wait() or 1)

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> AsyncIterator[Any]:
        """Yields the status and the headers of the server's answer, then its parts as they come."""
        sent = {"headers": headers, "data": body or None, "allow_redirects": False}
        async with self.client.request(method, self.url + path, **sent) as answer:
            described = {name.lower(): text for name, text in answer.headers.items()} | {"x-replica": self.name}
            yield answer.status, {name: text for name, text in described.items() if name not in OF_CONNECTION}
            async for part in answer.content.iter_any():
                yield part


def session(headers: dict[str, str], body: bytes) -> str:
    """Returns a key of the session that a request belongs to, whose prompts share a prefix; "" without one.

    It is what the client says, else the messages of a chat up to the first of the user.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    fields = fields if isinstance(fields, dict) else {}
    messages = fields.get("messages") if isinstance(fields.get("messages"), list) else []
    of_user = [i for i, x in enumerate(messages, 1) if isinstance(x, dict) and x.get("role") == "user"]
    begin = hashlib.sha256(json.dumps(messages[: of_user[0]]).encode()).hexdigest() if of_user else ""
    return str(headers.get("x-session-id") or fields.get("prompt_cache_key") or fields.get("user") or begin)


class SessionRouter:
    """Sends each request to the replica of its session, or to the next one if that is full or gone."""

    def __init__(self, replicas: Any, most: int):
        self.replicas = replicas.options(method_name="answer", stream=True)
        self.most = most  # bytes of a body

    async def __call__(self, http: requests.Request) -> Response:
        body = bytearray()
        async for part in http.stream():
            body += part
            if len(body) > self.most:
                break  # the server says that it is too long
        pairs = ((name.decode(), text.decode(errors="replace")) for name, text in http.headers.raw)
        headers = {name: text for name, text in pairs if name not in OF_CONNECTION}
        path = "/" + http.scope["raw_path"].decode("latin-1").lstrip("/")  # never another host
        replica = self.replicas.options(session_id=session(headers, body))
        for _ in range(2):  # nothing is lost of a request that a replica has not begun to answer
            try:
                parts = replica.remote(http.method, path, headers, bytes(body))
                status, described = await anext(parts)
                if described.get("content-type") == "text/event-stream":
                    return StreamingResponse(self.stream(parts), status, described)
                return Response(b"".join([part async for part in parts]), status, described)
            except Exception as error:  # of Ray or of the connection
                lost = describe_loss(error)
        return JSONResponse(lost, 503, {"Retry-After": "1"})

    async def stream(self, parts: Any) -> AsyncIterator[bytes]:
        try:
            async for part in parts:
                yield part
        except Exception as error:
            yield f"data: {json.dumps(describe_loss(error))}\n\ndata: [DONE]\n\n".encode()
        finally:
            parts.cancel()  # if the client is gone


def describe_loss(error: Exception) -> dict[str, Any]:
    """Prints an error; returns OpenAI's form of what clients are told."""
    print(f"warning: {' '.join(str(error).split())[:500]}", file=sys.stderr, flush=True)
    return {"error": {"message": LOST, "type": "server_error", "param": None, "code": None}}


@ending_with_messages()
def main() -> None:
    package = (__package__ or "").partition(".")[0]
    settings = tyro.cli(ReplicaSettings, prog=f"python -m {__package__}.replicas")
    served = tyro.cli(ServeSettings, prog=f"python -m {package}.serve", args=settings.server)
    _ = served.keys  # checked before Ray is asked
    point("replicas.served", served)
    if min(settings.replicas, served.port) < 1:
        raise InputError("--replicas and --port: must be at least 1")
    command = [f"{package}.serve", *settings.server, "--host=127.0.0.1", "--port=0"]
    environment = {name: x for name, x in os.environ.items() if name.startswith(("SERVE_API_KEY", "JAX_", "XLA_"))}
    devices = {"num_gpus": settings.gpus, "resources": {"TPU": settings.tpus} if settings.tpus else {}}
    full = served.engine.max_sequences
    replica = serve.deployment(
        Replica,
        num_replicas=settings.replicas,
        max_ongoing_requests=full,
        max_queued_requests=served.engine.queue,
        request_router_config=RequestRouterConfig(request_router_class=BY_SESSION),
        ray_actor_options={"num_cpus": settings.cpus, **devices},
        health_check_period_s=1,  # after which a replica that is gone is started again
        graceful_shutdown_timeout_s=served.drain_seconds,
    )
    router = serve.deployment(
        SessionRouter,
        max_ongoing_requests=2 * settings.replicas * full + served.engine.queue,
        ray_actor_options={"num_cpus": 0},
    )
    sent = {"py_modules": [str(Path(__file__).parents[1])]}  # the package, to each node
    try:
        ray.init(runtime_env=sent, logging_level="ERROR")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # not Ray's: as Ctrl-C
        serve.start(http_options={"host": served.host, "port": served.port})
        app = router.bind(replica.bind(command, os.getcwd(), environment), served.max_body)
        try:
            serve.run(app, name=package, route_prefix="/")
            print(f"{settings.replicas} replicas of {served.model} at http://{served.host}:{served.port}", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            serve.delete(package)  # once running answers are finished
    except (OSError, RuntimeError, ValueError, RayServeException) as error:
        raise InputError(f"{' '.join(str(error).split())}: see above, `ray status` and RAY_ADDRESS") from None


if __name__ == "__main__":
    main()
