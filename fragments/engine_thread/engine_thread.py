"""The engine in a thread of its own, for an event loop."""

import asyncio
import contextlib
import faulthandler
import math
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from generator.language import point
from generator.language.roles import Engine, QueueFull, Request, RequestError, SamplingParams

Prompts = list[tuple[list[int], SamplingParams]]  # tokens and sampling of each choice


class EngineFailed(Exception):
    """The engine ended by an error, which its process printed."""


class AnswerTimeout(Exception):
    """An answer took longer than it may."""


class Job:
    """The engine's requests for one answer, and a queue of their outputs."""

    def __init__(self, prompts: Prompts, salt: bytes):
        self.prompts = prompts
        self.salt = salt
        self.requests = list[Request]()
        self.outputs: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self) -> Any:
        """Returns first the list of requests, then for one at a time its index, number of tokens and finish reason.

        Raises RequestError, QueueFull, EngineFailed or AnswerTimeout.
        """
        output = await self.outputs.get()
        if isinstance(output, Exception):
            raise output
        return output


class EngineThread(threading.Thread):
    """The only thread that calls the engine: takes calls from a queue, and posts outputs to the event loop."""

    def __init__(self, engine: Engine, request_seconds: float):
        """Creates the thread without starting it; `request_seconds` is the time limit of an answer."""
        super().__init__(name="engine", daemon=True)
        self.engine = engine
        self.calls = queue.SimpleQueue[Callable[[], None] | None]()
        self.loop = asyncio.get_running_loop()
        self.jobs: set[Job] = set()  # used by the event loop
        self.places: dict[int, tuple[Job, int]] = {}  # by the id of an engine's request; used by this thread
        self.request_seconds = request_seconds
        self.busy_since = math.inf  # start of the running step
        self.failed = self.ending = False
        self.ready = asyncio.Event()  # set once the engine is warmed up
        point("EngineThread.made", self)

    def run(self) -> None:
        try:
            point("EngineThread.start", self)
            for line in self.engine.warm_up():
                print(f"compiled {line}", flush=True)
                if self.ending:
                    return
            self.loop.call_soon_threadsafe(self.ready.set)
            point("EngineThread.ready", self)
            while True:
                self.busy_since = math.inf
                while not self.calls.empty() or not (self.engine.queued or self.engine.running):
                    if not self.answer_call():
                        return
                self.busy_since = time.monotonic()
                changed = [request for request in self.engine.step() if id(request) in self.places]
                outputs = [(*self.places[id(x)], len(x.tokens), x.finish) for x in changed]
                self.loop.call_soon_threadsafe(self.post, outputs)
        except Exception:  # of the device, for example: the state of the engine is unknown now
            traceback.print_exc()
            self.loop.call_soon_threadsafe(self.fail)

    def answer_call(self) -> bool:
        """Runs the next call, and keeps no reference to it, as it may have one to a model. Returns False at the end."""
        if (call := self.calls.get()) is not None:
            call()
        return call is not None

    def end(self) -> None:
        """Ends the thread; waits a few seconds at most."""
        self.ending = True
        self.calls.put(None)
        self.join(5)

    def watch(self, seconds: float) -> None:
        """Fails the engine if a step has taken longer than this."""
        point("EngineThread.watch")
        if time.monotonic() - self.busy_since > seconds and not self.failed:
            print(f"error: a step of the engine has taken more than {seconds} s; all stacks:", file=sys.stderr)
            with contextlib.suppress(OSError, ValueError):  # stderr is not a file
                faulthandler.dump_traceback()
            self.fail()

    def post(self, outputs: list[tuple[Job, int, int, str | None]]) -> None:
        for job, *output in outputs:
            job.outputs.put_nowait(output)

    def fail(self) -> None:
        self.failed = True
        for job in self.jobs:
            job.outputs.put_nowait(EngineFailed("the engine failed: see the server's log"))

    @contextlib.contextmanager
    def job(self, prompts: Prompts, salt: bytes = b"") -> Iterator[Job]:
        """Adds a request for each prompt, all or none; cancels the unfinished ones on exit."""
        if self.failed:
            raise EngineFailed("the engine failed: the server is shutting down")
        job = Job(prompts, salt)
        late = AnswerTimeout(f"the answer took more than {self.request_seconds} seconds")
        timer = self.loop.call_later(self.request_seconds, job.outputs.put_nowait, late)
        self.jobs.add(job)
        self.calls.put(lambda: self.add(job))
        try:
            yield job
        finally:
            timer.cancel()
            self.jobs.discard(job)
            self.calls.put(lambda: self.cancel(job.requests))

    def add(self, job: Job) -> None:
        output: Any = job.requests
        try:
            for index, (prompt, sampling) in enumerate(job.prompts):
                job.requests.append(self.engine.add(prompt, sampling, job.salt))
                self.places[id(job.requests[-1])] = job, index
        except (RequestError, QueueFull) as error:
            output = error
        self.loop.call_soon_threadsafe(job.outputs.put_nowait, output)

    def cancel(self, requests: list[Request]) -> None:
        for request in requests:
            self.places.pop(id(request), None)
            self.engine.cancel(request)
