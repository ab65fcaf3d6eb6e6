"""HTTP: a running server reads its weights anew."""

import asyncio
import concurrent.futures
import functools
import os
import time

import jax
from starlette import requests
from starlette.responses import Response
from starlette.routing import Route

from generator.language import requires, splice
from generator.language.roles import (
    Decoder,
    EngineThread,
    InputError,
    Refusal,
    ServeSettings,
    as_json,
    bearer_key,
    load_to_serve,
    replace_weights,
)

requires("serve/serve")


@splice("ServeSettings.fields")
def _():
    load_key: str = ""  # key for POST /v1/load, which reads the weights anew; "": SERVE_LOAD_KEY; neither: refused
    recompute: bool = False  # whether newer weights compute running sequences again, rather than continue them


def load_weights(engine: EngineThread, settings: ServeSettings, problem: concurrent.futures.Future[str]) -> None:
    """Loads the newest weights. The result of `problem` is what is wrong with them, or "".

    It is no error, as the traceback of one would hold the memory of weights.
    """

    def replace(models: list[Decoder]) -> None:  # in the engine's thread
        try:
            replace_weights(engine.engine, models.pop(), settings.recompute)
            problem.set_result("")
        except (InputError, MemoryError, jax.errors.JaxRuntimeError) as error:
            problem.set_result(str(error).partition("\n")[0])

    try:
        _, *models, _ = load_to_serve(settings)  # a list, so that `replace` can drop the last reference to the model
        engine.calls.put(lambda: replace(models))
    except (InputError, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
        problem.set_result(str(error).partition("\n")[0])


async def load(
    engine: EngineThread, settings: ServeSettings, loading: asyncio.Lock, http: requests.Request
) -> Response:
    """Answers POST /v1/load once the newest checkpoint of --checkpoint-dir, or --hf, has replaced the weights."""
    start = time.perf_counter()
    key = settings.load_key or os.environ.get("SERVE_LOAD_KEY", "")
    if not (key and bearer_key(http, (key,))):
        problem = "to load weights takes --load-key or SERVE_LOAD_KEY of the server: send Authorization: Bearer KEY"
        raise Refusal(401, problem, code="invalid_api_key")
    if loading.locked() or not engine.ready.is_set():
        raise Refusal(503, "the server is compiling, or loads weights already: try again")
    if jax.process_count() > 1:
        raise Refusal(501, "a server of several processes cannot load weights: start it anew")
    async with loading:
        problem = concurrent.futures.Future[str]()
        await asyncio.to_thread(load_weights, engine, settings, problem)
        if why := await asyncio.wrap_future(problem):
            raise Refusal(409, f"the weights stay as they were: {why}")
    seconds = round(time.perf_counter() - start, 1)
    print(f"read the weights anew in {seconds} s", flush=True)
    return as_json({"seconds": seconds})


@splice("Server.routes")
def _(self, routes):
    routes.append(
        Route("/v1/load", functools.partial(load, self.engine, self.settings, asyncio.Lock()), methods=["POST"])
    )


@splice("replicas.served")
def _(served):
    if served.load_key:
        raise InputError("--load-key: a load reaches one replica: leave it out, and start the replicas anew")
