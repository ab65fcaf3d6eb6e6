"""The engine in a thread, and what it tells the event loop."""

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

from generator.language.roles import Engine, InputError, QueueFull, Refusal, Request, SamplingParams


class Job:
    """The requests of one answer: in the engine, and the news of them."""

    def __init__(self, wanted: list[tuple[list[int], SamplingParams]], salt: bytes):
        self.wanted, self.salt, self.requests = wanted, salt, list[Request]()
        self.news: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self) -> Any:
        """At first the requests, then of one of them its index, how many tokens it has, and how it ended, if it did."""
        news = await self.news.get()
        if isinstance(news, Exception):
            raise news
        return news


class EngineThread(threading.Thread):
    """The one thread that calls the engine. Calls come by a queue, from the event loop; news go to it by its own."""

    def __init__(self, engine: Engine, request_seconds: float):
        """Begins nothing yet; the answer of each request has so many seconds."""
        super().__init__(name="engine", daemon=True)
        self.engine, self.calls = engine, queue.SimpleQueue[Callable[[], None] | None]()
        self.loop = asyncio.get_running_loop()
        self.jobs: set[Job] = set()  # of the event loop
        self.places: dict[int, tuple[Job, int]] = {}  # by the id of a request in the engine: of this thread
        self.request_seconds, self.busy_since = request_seconds, math.inf  # when the step that runs was started
        self.failed, self.ending, self.ready = False, False, asyncio.Event()  # ready: all programs are compiled

    def run(self) -> None:
        try:
            for line in self.engine.warm_up():
                print(f"compiled {line}", flush=True)
                if self.ending:
                    return
            self.loop.call_soon_threadsafe(self.ready.set)
            while True:
                self.busy_since = math.inf
                while not self.calls.empty() or not self.engine.queued + self.engine.running:
                    if (call := self.calls.get()) is None:
                        return
                    call()
                self.busy_since = time.monotonic()
                changed = [request for request in self.engine.step() if id(request) in self.places]
                news = [(*self.places[id(x)], len(x.tokens), x.finish) for x in changed]
                self.loop.call_soon_threadsafe(self.tell, news)
        except Exception:  # of the device, say: nothing is known of the engine's state any more
            traceback.print_exc()
            self.loop.call_soon_threadsafe(self.fail)

    def end(self) -> None:
        """Ends the thread, if that does not take long."""
        self.ending = True
        self.calls.put(None)
        self.join(5)

    def watch(self, seconds: float) -> None:
        """Fails where a step has taken longer than this: the device does not answer."""
        if time.monotonic() - self.busy_since > seconds and not self.failed:
            print(f"error: a step of the engine takes more than {seconds} s: the stacks are", file=sys.stderr)
            with contextlib.suppress(OSError, ValueError):  # where stderr is no file
                faulthandler.dump_traceback()
            self.fail()

    def tell(self, news: list[tuple[Job, int, int, str | None]]) -> None:
        for job, *rest in news:
            job.news.put_nowait(rest)

    def fail(self) -> None:
        self.failed = True
        for job in self.jobs:
            job.news.put_nowait(Refusal(500, "the engine failed: its log says why"))

    @contextlib.contextmanager
    def job(self, wanted: list[tuple[list[int], SamplingParams]], salt: bytes = b"") -> Iterator[Job]:
        """Adds a request for each prompt and its sampling, or none; at the end, cancels those that still run."""
        if self.failed:
            raise Refusal(503, "the engine failed: the server ends")
        job, late = Job(wanted, salt), f"the answer takes more than {self.request_seconds} seconds"
        timer = self.loop.call_later(self.request_seconds, job.news.put_nowait, Refusal(504, late))
        self.jobs.add(job)
        self.calls.put(lambda: self.add(job))
        try:
            yield job
        finally:
            timer.cancel()
            self.jobs.discard(job)
            self.calls.put(lambda: self.cancel(job.requests))

    def add(self, job: Job) -> None:
        news: Any = job.requests
        try:
            for index, (prompt, sampling) in enumerate(job.wanted):
                job.requests.append(self.engine.add(prompt, sampling, job.salt))
                self.places[id(job.requests[-1])] = job, index
        except (InputError, QueueFull) as error:
            full, words = isinstance(error, QueueFull), str(error).replace("--max-tokens", "max_tokens")
            news = Refusal(429, "too many requests wait: try again") if full else Refusal(400, words)
        self.loop.call_soon_threadsafe(job.news.put_nowait, news)

    def cancel(self, requests: list[Request]) -> None:
        for request in requests:
            self.places.pop(id(request), None)
            if request.finish is None:
                self.engine.cancel(request)
