"""Parts of the server by themselves: the engine's thread, defaults of sampling, keys."""

import asyncio
import dataclasses
import json
import threading
import time
import types

import pytest

from generator.language import point, requires
from generator.language.roles import WIDE, EngineSettings, InputError, NoTokenizer, Request, SamplingParams, module

requires("serve")


class BrokenEngine:
    """An engine whose first step returns nothing, or fails."""

    queued, running = 0, 0
    device = types.SimpleNamespace(rows=[1], chunks={1: 1}, widths=[1], steps=list, followers=())

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
    refusal = module("openai").Refusal
    broken = act is not list

    async def wait_for_answer() -> None:
        thread = module("engine_thread").EngineThread(BrokenEngine(act), request_seconds)
        thread.start()
        words = "the engine failed" if broken else "the answer took more than 0.3 seconds"
        with thread.job([([1], SamplingParams())]) as job, pytest.raises(refusal, match=words):
            while True:
                await asyncio.sleep(0.2)
                thread.watch(step_seconds)
                await asyncio.wait_for(job.next(), 10)
        if broken:
            with pytest.raises(refusal, match="the server is shutting down"), thread.job([([1], SamplingParams())]):
                pass
        thread.engine.running = 0
        thread.end()

    asyncio.run(wait_for_answer())
    assert ("the device is gone" in capfd.readouterr().err) == (act is fail)


def test_defaults_come_from_the_checkpoint_and_ids_need_no_tokenizer(tmp_path):
    serve, openai = module("serve"), module("openai")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7, "repetition_penalty": 1.5}')
    config = dataclasses.replace(WIDE, tokenizer=str(tmp_path / "tokenizer.json"))
    engine = types.SimpleNamespace(config=config, room=64, settings=EngineSettings())
    point("test_serve_parts.engine", engine)
    ready = threading.Event()
    ready.set()
    thread = types.SimpleNamespace(engine=engine, failed=False, ready=ready)
    server = serve.Server(serve.ServeSettings(engine=engine.settings), thread, NoTokenizer())
    route = next(route for route in server.app.routes if route.path == "/v1/completions")

    def ask_server(**content):
        async def receive():
            return {"type": "http.request", "body": json.dumps(content).encode()}

        headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "state": {"id": "x"}}
        return asyncio.run(route.endpoint(serve.requests.Request(scope, receive)))

    ((_, first),) = ask_server(prompt=[1, 2]).wanted
    assert (first.temperature, first.top_k, first.repetition_penalty) == (0.25, 7, 1.5)
    ((_, second),) = ask_server(prompt=[1, 2], temperature=0, top_k=0).wanted
    assert (second.temperature, second.top_k, second.repetition_penalty) == (0, 0, 1.5)
    with pytest.raises(openai.Refusal, match="there is no tokenizer: give token ids") as refused:
        ask_server(prompt="text")
    assert refused.value.status == 400


def test_a_server_for_other_machines_needs_a_key_or_a_flag(monkeypatch):
    settings = module("serve").ServeSettings
    for given, host, words in (None, "0.0.0.0", "lets other machines in"), ("", "127.0.0.1", "is empty"):
        monkeypatch.delenv("SERVE_API_KEY", raising=False)
        if given is not None:
            monkeypatch.setenv("SERVE_API_KEY", given)
        with pytest.raises(InputError, match=words):
            _ = settings(engine=None, host=host).keys
    monkeypatch.setenv("SERVE_API_KEY", "a,b")
    assert settings(engine=None, host="0.0.0.0").keys == ("a", "b")
