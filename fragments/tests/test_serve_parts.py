"""Parts of the server by themselves: the engine's thread, defaults of sampling, keys."""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import threading
import time
import types

import pytest

from generator.language import point, requires
from generator.language.roles import (
    WIDE,
    ByteTokenizer,
    EngineSettings,
    InputError,
    NoTokenizer,
    Request,
    SamplingParams,
    module,
)

requires("serve")


class BrokenEngine:
    """An engine whose first step returns nothing, or fails."""

    queued, running = 0, 0
    shapes = types.SimpleNamespace(rows=[1], chunks={1: 1}, widths=[1])
    device = types.SimpleNamespace(shapes=shapes, steps=list, followers=())

    def __init__(self, act):
        self.step = act

    def warm_up(self):
        yield "nothing"

    def add(self, prompt, sampling, salt):
        self.running = 1
        return Request(prompt, sampling)

    def cancel(self, request):
        pass


def fail():
    raise RuntimeError("the device is gone")


ENDINGS = {"failed": (fail, 60, 60), "stuck": (lambda: time.sleep(3), 60, 0.1), "late": (list, 0.3, 60)}


@pytest.mark.parametrize(("act", "request_seconds", "step_seconds"), ENDINGS.values(), ids=ENDINGS)
def test_an_engine_that_fails_or_hangs_ends_all_answers(act, request_seconds, step_seconds, capfd):
    broken = act is not list
    engine = module("engine_thread")
    error = engine.EngineFailed if broken else engine.AnswerTimeout

    async def wait_for_answer() -> None:
        thread = engine.EngineThread(BrokenEngine(act), request_seconds)
        thread.start()
        words = "the engine failed" if broken else "the answer took more than 0.3 seconds"
        with thread.job([([1], SamplingParams())]) as job, pytest.raises(error, match=words):
            while True:
                await asyncio.sleep(0.2)
                thread.watch(step_seconds)
                await asyncio.wait_for(job.next(), 10)
        if broken:
            with pytest.raises(error, match="the server is shutting down"), thread.job([([1], SamplingParams())]):
                pass
        thread.engine.running = 0
        thread.end()

    asyncio.run(wait_for_answer())
    assert ("the device is gone" in capfd.readouterr().err) == (act is fail)


@pytest.mark.parametrize("stream", [True, False])
def test_errors_of_our_own_are_told_to_clients(stream, capfd):
    """An answer that has begun ends in an event and [DONE]; any other is a refusal, which the gate sends."""
    http, openai = module("server"), module("openai")
    events: list[dict] = []

    async def run() -> None:
        engine_thread = module("engine_thread")
        thread = engine_thread.EngineThread(BrokenEngine(list), 60)
        job = engine_thread.Job([], b"")
        job.outputs.put_nowait([Request([1], SamplingParams(), [5, 6])])
        job.outputs.put_nowait((7, 1, None))  # of a choice that there is not
        thread.job = lambda prompts, salt: contextlib.nullcontext(job)
        metrics = http.ServeMetrics(types.SimpleNamespace())
        settings = types.SimpleNamespace(model="small")
        server = types.SimpleNamespace(
            engine=thread, metrics=metrics, settings=settings, tokenizer=ByteTokenizer(), template=None, active=0
        )
        request = openai.Completion(prompt=[1], stream=stream)

        async def send(message):
            events.append(message)

        async def app(scope, receive, send):
            await http.Answer(server, request, [([1], SamplingParams())], b"", "x")(scope, receive, send)

        scope = {"type": "http", "method": "POST", "raw_path": b"/v1/completions", "path": "/", "client": None}
        scope |= {"http_version": "1.1", "headers": [(b"host", b"localhost")], "state": {}}
        await http.gate(app, {"localhost"}, set(), metrics.answers)(scope, lambda: asyncio.sleep(60), send)

    asyncio.run(run())
    start, *bodies = events
    assert start["status"] == (200 if stream else 500)
    *_, error, done = bodies if stream else [*bodies, {"body": b"data: [DONE]\n\n"}]
    assert done["body"] == b"data: [DONE]\n\n"
    told = json.loads(error["body"].removeprefix(b"data: "))["error"]
    assert told["type"] == "server_error" and "internal server error" in told["message"]
    assert "IndexError" in capfd.readouterr().err


def test_defaults_come_from_the_checkpoint_and_ids_need_no_tokenizer(tmp_path):
    http, openai = module("server"), module("openai")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7, "repetition_penalty": 1.5}')
    config = dataclasses.replace(WIDE, tokenizer=str(tmp_path / "tokenizer.json"))
    engine = types.SimpleNamespace(config=config, room=64, settings=EngineSettings())
    point("test_serve_parts.engine", engine)
    ready = threading.Event()
    ready.set()
    thread = types.SimpleNamespace(engine=engine, failed=False, ready=ready)
    server = http.Server(http.ServeSettings(engine=engine.settings), thread, NoTokenizer())
    route = next(route for route in server.app.routes if route.path == "/v1/completions")

    def ask_server(**content):
        async def receive():
            return {"type": "http.request", "body": json.dumps(content).encode()}

        headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "state": {"id": "x"}}
        return asyncio.run(route.endpoint(http.requests.Request(scope, receive)))

    ((_, first),) = ask_server(prompt=[1, 2]).prompts
    assert (first.temperature, first.top_k, first.repetition_penalty) == (0.25, 7, 1.5)
    ((_, second),) = ask_server(prompt=[1, 2], temperature=0, top_k=0).prompts
    assert (second.temperature, second.top_k, second.repetition_penalty) == (0, 0, 1.5)
    with pytest.raises(openai.Refusal, match="there is no tokenizer: give token ids") as refused:
        ask_server(prompt="text")
    assert refused.value.status == 400


def test_what_has_no_effect_is_told_once(capfd):
    """Tools and reasoning_effort where the template reads neither."""
    openai = module("openai")
    openai.WARNED.clear()
    template = types.SimpleNamespace(reads=lambda name: False, names={}, texts={}, encode=lambda *given: [given])
    tool = {"type": "function", "function": {"name": "f"}}
    hints = {"tools": [tool], "reasoning_effort": "low", "parallel_tool_calls": False, "verbosity": "high"}
    point("test_serve_parts.hints", hints)
    content = json.dumps({"messages": [{"role": "user", "content": "x"}]} | hints).encode()
    for _ in range(3):
        assert openai.read_fields(content, openai.Chat, {}).encode(None, template, 64, 64)
    told = capfd.readouterr().err.splitlines()
    assert len(told) == len(hints) and all(sum(f"have {name}, " in line for line in told) == 1 for name in hints)


@pytest.mark.parametrize("half", [r"\ud83d", r"\udc00", r"\ud83d\ud83d"])
@pytest.mark.parametrize(
    "body", ['{"prompt": "a", "stop": "HALF"}', '{"prompt": "HALF"}', '{"stop": ["HALF"], "seed": 1}']
)
def test_half_a_surrogate_pair_is_named(body, half):
    openai = module("openai")
    with pytest.raises(openai.Refusal, match=r"surrogate pair \(byte "):
        openai.read_fields(body.replace("HALF", half).encode(), openai.Completion, {})
    with pytest.raises(openai.Refusal, match="truncated"):
        openai.read_fields(body[:-3].encode(), openai.Completion, {})


def test_a_server_for_other_machines_needs_a_key_or_a_flag(monkeypatch):
    settings = module("serve").ServeSettings
    for given, host, words in (None, "0.0.0.0", "lets other machines in"), ("", "127.0.0.1", "is empty"):
        monkeypatch.delenv("SERVE_API_KEY", raising=False)
        if given is not None:
            monkeypatch.setenv("SERVE_API_KEY", given)
        with pytest.raises(InputError, match=words):
            _ = settings(engine=None, host=host).keys
    monkeypatch.setenv("SERVE_API_KEY", "a, b ")
    assert settings(engine=None, host="0.0.0.0").keys == ("a", "b")


def test_bodies_count_until_they_are_tokenized():
    """So that many clients cannot fill the memory while a slow text is tokenized."""
    server = object.__new__(module("server").Server)
    proceed = threading.Event()
    server.settings = types.SimpleNamespace(max_body=9, client_seconds=60)
    server.engine = types.SimpleNamespace(ready=types.SimpleNamespace(is_set=lambda: True))
    server.threads = {"/a": concurrent.futures.ThreadPoolExecutor(1)}
    server.keys = ()
    server.draining = False
    server.unanswered = 0
    server.prepare = lambda *_: proceed.wait(60) / 0
    scope = {"type": "http", "method": "POST", "scheme": "http", "server": ("a", 1), "path": "/a", "query_string": b""}
    scope["headers"] = [(b"content-type", b"application/json")]

    async def receive() -> dict:
        return {"type": "http.request", "body": b"x" * 9, "more_body": False}

    async def ask(count: int) -> list:
        answers = [server.answer(None, module("server").requests.Request(scope, receive)) for _ in range(count)]
        asyncio.get_running_loop().call_later(0.2, proceed.set)
        return await asyncio.gather(*answers, return_exceptions=True)

    kinds = collections.Counter(getattr(error, "status", type(error)) for error in asyncio.run(ask(18)))
    assert kinds == {ZeroDivisionError: 16, 429: 2} and server.unanswered == 0
