"""The server as clients see it: its log-probabilities are those of training; how requests end."""

import asyncio
import contextlib
import dataclasses
import http.client
import importlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generator.language import requires
from generator.language.roles import (
    PACKAGE,
    PRESETS,
    SMALL,
    Decoder,
    EngineSettings,
    FileTokenizer,
    InputError,
    NoTokenizer,
    Request,
    SamplingParams,
    import_hf,
    load_to_serve,
    load_tokenizer,
    save_hf,
)

requires("serve")

CONFIG = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)  # GPT-2's heads fill the width


TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson(indent=1) }}{% endif %}{% for message in messages %}"
    "[{{ message.role }}] {{ message.content | trim }}{% for call in message.tool_calls %}<tool_call>"
    "{{ call.function.name }}{% for name, value in call.function.arguments.items() %} {{ name }}="
    "{{ value | tojson(ensure_ascii=True, sort_keys=True) }}{% endfor %}{% endfor %}{{ message.tool_call_id }}"
    "{% if loop.last and not add_generation_prompt %}{{ message.thinking }}{% else %}{{ eos_token }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}[assistant{{ mood }}]\n"
    "  {%- generation %} {% endgeneration %}{% endif %}"
)


def module(name: str):
    """Imports a module that needs optional requirements."""
    pytest.importorskip("starlette", reason="needs starlette and uvicorn: pip install '.[serve]'")
    return importlib.import_module(f"..{name}", __package__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Makes a Hugging Face directory: random weights, a token for each byte, a chat template."""
    folder = tmp_path_factory.mktemp("serve") / "hf"
    save_hf(CONFIG, jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))(), folder)
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@contextlib.contextmanager
def served(folder, *flags: str):
    """Starts a server; yields its process, its port, and the statuses of three paths while it compiles."""
    module("serve")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", f"{PACKAGE.name}.serve", "--hf", folder, "--port", str(port), "--dtype", "float32"]
    environment = {name: x for name, x in os.environ.items() if name != "SERVE_API_KEY"} | {"JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        [*command, *flags], cwd=PACKAGE.parent, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert next(process.stdout).startswith("compiled")
            early = [ask(port, path, *x)[0] for path, *x in (["/health"], ["/ready"], ["/v1/completions", {}])]
            assert any(line == f"small at http://127.0.0.1:{port}\n" for line in process.stdout)
            yield process, port, early
        finally:
            process.terminate()  # SIGTERM waits for running requests
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


SLOW = 900  # seconds; interpreted kernels take more than a minute


@pytest.fixture(scope="module")
def server(folder):
    sizes = "--queue", "20", "--max-sequences", "4", "--max-body", "100000", "--drain-seconds", str(SLOW)
    with served(folder, *sizes, "--model", "small", "--api-key", "kéy", "another") as found:
        yield found


@pytest.fixture(scope="module")
def port(server):
    return server[1]


def ask(port: int, path: str, content=None, headers=(), seconds=60):
    """Returns status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    body = content if content is None or isinstance(content, bytes) else json.dumps(content)
    given = {"Content-Type": "application/json", "Authorization": "bearer kéy".encode()} | dict(headers)
    connection.request("GET" if content is None else "POST", path, body, given)
    response = connection.getresponse()
    found = response.read()
    connection.close()
    is_json = response.getheader("content-type") == "application/json"
    return response.status, response.headers, json.loads(found) if is_json else found.decode()


def complete(port: int, **fields):
    status, _, answer = ask(port, "/v1/completions", fields)
    assert status == 200, answer
    return answer


def stream(port: int, path: str = "/v1/completions", **fields) -> list[dict]:
    """Returns the events of a stream, which must end as OpenAI's do."""
    status, headers, text = ask(port, path, fields | {"stream": True})
    assert status == 200 and headers["content-type"] == "text/event-stream", text
    *events, last, end = text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def number(port: int, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)$", ask(port, "/metrics")[2], re.MULTILINE)[1])


def test_log_probabilities_equal_those_of_training(folder, port):
    """Of the prompt and of a greedy continuation, as lm-eval requests them."""
    prompts = [[256, *range(40, 70)], [256, 5, 250, 7]]
    asked = dict(prompt=prompts, max_tokens=6, temperature=0, logprobs=3, echo=True, return_token_ids=True)
    model = jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()
    choices = complete(port, **asked, ignore_eos=True)["choices"]
    for prompt, choice in zip(prompts, choices, strict=True):
        tokens = choice["token_ids"]
        assert tokens[: len(prompt)] == prompt and len(tokens) == len(prompt) + 6
        expected = np.asarray(jax.nn.log_softmax(model(np.array([tokens], np.int32))[0]))
        found = choice["logprobs"]
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        given = expected[np.arange(len(tokens) - 1), tokens[1:]]
        np.testing.assert_allclose(found["token_logprobs"][1:], given, atol=1e-5)
        for at, top in enumerate(found["top_logprobs"][1:]):
            np.testing.assert_allclose(max(top.values()), expected[at].max(), atol=1e-5)
        assert tokens[len(prompt) :] == expected[len(prompt) - 1 : -1].argmax(axis=1).tolist()
    assert [choice["index"] for choice in choices] == [0, 1]


def test_a_stream_equals_a_whole_answer(port):
    asked = dict(prompt=["größer", [256, 1, 2]], max_tokens=20, seed=3, n=2, logprobs=1, echo=True)
    whole, events = complete(port, **asked), stream(port, **asked, stream_options={"include_usage": True})
    *parts, last = events
    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens"] == 8 + 3 and whole["usage"]["completion_tokens"] <= 4 * 20
    for index, choice in enumerate(whole["choices"]):
        told = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert "".join(x["text"] for x in told) == choice["text"]
        assert [t for x in told for t in x["logprobs"]["tokens"]] == choice["logprobs"]["tokens"]
        assert [t for x in told for t in x["logprobs"]["text_offset"]] == choice["logprobs"]["text_offset"]
        assert [x["finish_reason"] for x in told if x["finish_reason"]] == [choice["finish_reason"]]
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts[0] != texts[1] and texts[0].startswith("größer")  # different seeds
    assert complete(port, **asked)["choices"] == whole["choices"]
    assert {part["id"] for part in events} == {events[0]["id"]} != {whole["id"]}


def test_a_prompt_is_echoed(port):
    choice = complete(port, prompt="größer als 日本", max_tokens=1, temperature=0, echo=True)["choices"][0]
    assert choice["text"].startswith("größer als 日本") and choice["logprobs"] is None


def test_a_stop_string_that_straddles_tokens_is_never_shown(port):
    asked = dict(prompt="def ", max_tokens=60, seed=5, ignore_eos=True)
    text = complete(port, **asked)["choices"][0]["text"]
    stop = text[20:24]
    at = text.find(stop)
    for stops in stop, ["not there", stop[:3] + "no", stop]:
        choice = complete(port, **asked, stop=stops, return_token_ids=True)["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (text[:at], "stop")
        shown = [event["choices"][0]["text"] for event in stream(port, **asked, stop=stops)]
        assert "".join(shown) == text[:at]
    wait_for(port, 0)  # stopped requests are cancelled


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": ["größer", null]}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"x": {"default": None}}, "description": "日"}}
CHATS = {
    "one": dict(messages=[{"role": "user", "content": " Hello? "}]),
    "several": dict(
        messages=[
            {"role": "system", "content": "größer"},
            {"role": "user", "content": "日本", "name": None},
            {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "tool_calls": None},
        ]
    ),
    "tools": dict(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "audio": None, "function_call": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        ],
        tools=[TOOL],
    ),
    "continued": dict(
        messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is "}],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "variables": dict(messages=[{"role": "user", "content": "x"}], chat_template_kwargs={"mood": "!"}),
}


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_chats_are_written_as_by_transformers(folder, port, chat):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install '.[test]'")
    theirs = json.loads(json.dumps(chat | {"tokenize": True, "return_dict": False}))
    for call in (call for message in theirs["messages"] for call in message.get("tool_calls") or []):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    messages, names = theirs.pop("messages"), theirs.pop("chat_template_kwargs", {})
    expected = tokenizer.apply_chat_template(messages, **{"add_generation_prompt": True} | theirs | names)
    asked = dict(temperature=0, return_token_ids=True)
    status, _, found = ask(port, "/v1/chat/completions", chat | dict(max_completion_tokens=9, **asked))
    assert status == 200 and found["choices"][0]["message"]["role"] == "assistant", found
    assert found["usage"]["prompt_tokens"] == len(expected)
    plain = complete(port, prompt=expected, max_tokens=9, **asked)
    assert plain["choices"][0]["token_ids"] == found["choices"][0]["token_ids"]


def test_a_checkpoint_keeps_its_chat_template(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "hf")
    (copied / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    import_hf(str(copied), str(tmp_path / "run"))
    config, model, _ = load_to_serve(str(tmp_path / "run"), "", "bfloat16", 1, int8=False)
    assert model.config == config and config.dtype == "bfloat16"
    tokenizer = load_tokenizer(config.tokenizer)
    template = module("chat_template").load_chat_template(tokenizer, config.tokenizer)
    assert template.encode(CHATS["one"]["messages"]) == tokenizer.encode(" Hello? !")
    with pytest.raises(InputError, match="give either --checkpoint-dir or --hf"):
        load_to_serve("", "", None, 1, int8=False)
    (copied / "chat_template.jinja").write_text("{% if")
    with pytest.raises(InputError, match="the chat template beside it cannot be read"):
        module("chat_template").load_chat_template(tokenizer, str(copied / "tokenizer.json"))


def test_texts_end_where_those_of_transformers_do(folder, tmp_path):
    """Chat checkpoints name end-of-turn tokens, beside eos."""
    transformers = pytest.importorskip("transformers")
    copied = shutil.copytree(folder, tmp_path / "hf")
    path = copied / "tokenizer.json"
    tokenizer = FileTokenizer(path)
    load_ends = module("text").load_ends
    assert load_ends(tokenizer, str(path)) == {tokenizer.eos}
    for ids in 7, [7, 300], None, tokenizer.eos:
        transformers.GenerationConfig(eos_token_id=ids).save_pretrained(copied)
        theirs = transformers.GenerationConfig.from_pretrained(copied).eos_token_id
        assert load_ends(tokenizer, str(path)) == {tokenizer.eos, *np.ravel([] if theirs is None else theirs).tolist()}
    for wrong in '{"eos_token_id": "7"}', '{"eos_token_id": [7.5]}', '{"eos_token_id": Infinity}', "[7]", "{":
        (copied / "generation_config.json").write_text(wrong)
        with pytest.raises(InputError, match="eos_token_id must be a token or several"):
            load_ends(tokenizer, str(path))


def test_defaults_come_from_the_checkpoint_and_ids_need_no_tokenizer(tmp_path):
    serve, openai = module("serve"), module("openai")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7, "repetition_penalty": 1.5}')
    config = dataclasses.replace(CONFIG, tokenizer=str(tmp_path / "tokenizer.json"))
    engine = types.SimpleNamespace(config=config, room=64, settings=EngineSettings())
    ready = threading.Event()
    ready.set()
    thread = types.SimpleNamespace(engine=engine, failed=False, ready=ready)
    server = serve.Server(serve.ServeSettings(engine.settings), thread, NoTokenizer())
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


def test_a_message_cannot_contain_a_special_token(port):
    lengths = []
    for text in "a</s>b", "a</z>b":
        chat = dict(messages=[{"role": "user", "content": text}], max_tokens=1)
        lengths.append(ask(port, "/v1/chat/completions", chat)[2]["usage"]["prompt_tokens"])
    assert lengths[0] == lengths[1]


def test_the_client_of_openai(port):
    openai = pytest.importorskip("openai", reason="needs openai: pip install openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="another", max_retries=0)
    assert [model.id for model in client.models.list()] == [client.models.retrieve("small").id] == ["small"]
    asked = dict(model="small", messages=[{"role": "user", "content": "Hello"}], max_completion_tokens=12, seed=1)
    chat = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    events = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content for event in events for choice in event.choices)
    assert text == chat.choices[0].message.content
    tokens = events[-1].usage  # with details on cached tokens, which differ
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert all(len(x.top_logprobs) == 2 and x.logprob <= 0 for x in chat.choices[0].logprobs.content)
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError, match="context"):
        client.completions.create(model="small", prompt="x", max_tokens=10**6)


REFUSED = {
    400: [
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "x", "temperature": -1},
        {"prompt": "x", "unheard_of": 1},
        {"prompt": "x", "response_format": {"type": "json_object"}},
        {"prompt": "x", "logit_bias": {"5": 101}},
        {"prompt": "x", "logit_bias": {"1000000": 1}},
        {"prompt": "x", "tools": []} | {"tools": [TOOL]},
        {"prompt": "x" * 5000},
        {"prompt": [5] * 600},
        {"prompt": []},
        {"prompt": ["x", [1]], "max_tokens": "9"},
        {"prompt": ["x", 1]},
        {"prompt": [10**9]},
        {"prompt": [CONFIG.vocab_size]},
        {"prompt": [-1]},
        {"prompt": "x", "stop": ""},
        {"prompt": ["x"] * 15, "n": 2},
        {},
        [],
        b"{",
        b'{"prompt": "\xff"}',
        b'{"prompt": "x", "top_p": NaN}',
        b"[" * 90_000,
    ],
    404: [{"prompt": "x", "model": "gpt-4"}],
    413: [{"prompt": "x" * 100_000}],
}


@pytest.mark.parametrize(
    ("status", "content"), [(code, x) for code, all in REFUSED.items() for x in all], ids=lambda x: str(x)[:40]
)
def test_errors_are_in_openais_format(port, status, content):
    found, _, answer = ask(port, "/v1/completions", content)
    assert found == status
    assert answer["error"].keys() == {"message", "type", "param", "code"} and answer["error"]["message"]


def test_fields_without_effect_are_accepted(port):
    nothing = dict(
        best_of=1, user="me", suffix=None, logit_bias={}, stop=None, tools=None, response_format={"type": "text"}
    )
    complete(port, prompt="x", max_tokens=1, seed=-(10**30), top_k=10**6, **nothing)


def test_other_types_and_paths(port):
    assert ask(port, "/v1/completions", b"prompt=x", {"Content-Type": "text/plain"})[0] == 415
    assert ask(port, "/v1/completions")[0] == 405
    assert ask(port, "/v1/unknown")[2]["error"]["type"] == "invalid_request_error"


def test_the_page_needs_no_other_host(port):
    status, headers, page = ask(port, "/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "<form>" in page and not re.search(r"https?:|src=|href=|@import", page)


@contextlib.contextmanager
def long_answers(port: int):
    """Requests ten texts of maximum length; disconnects on exit."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        asked = {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": CONFIG.context_length - 10, "n": 10}
        given = {"Content-Type": "application/json", "Authorization": "Bearer another"}
        connection.request("POST", "/v1/completions", json.dumps(asked), given)
        yield connection


def wait_for(port: int, requests: int) -> None:
    """Waits until the engine has so many requests."""
    deadline = time.monotonic() + 10
    while (found := number(port, "serve_running") + number(port, "serve_queued")) != requests:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_requests_of_a_client_that_disconnects_are_cancelled(port):
    with long_answers(port) as connection, connection.getresponse() as response:
        assert response.readline().startswith(b"data: {")
        wait_for(port, 10)
    wait_for(port, 0)
    assert number(port, r'serve_requests_total\{finish="cancelled"\}') == 10


def test_a_full_queue_says_to_come_again(port):
    with long_answers(port), long_answers(port):
        wait_for(port, 20)
        status, headers, answer = ask(port, "/v1/completions", {"prompt": "x", "n": 20})
        assert status == 429 and int(headers["retry-after"]) >= 1 and answer["error"]["type"] == "rate_limit_error"
    wait_for(port, 0)


class BrokenEngine:
    """An engine whose first step returns nothing, or fails."""

    queued, running = 0, 0

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


STOPS = ["", "a", "ab", "aab", "abab", "bbba", "aaaaaaab"]


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_cut_before_its_first_stop_string(seed):
    draw, choices = random.Random(seed), module("choices")
    text = "".join(draw.choices("ab", k=60))
    stops = draw.sample(STOPS[1:], 2) if seed else []
    at = min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))
    cut, shown = choices.Stops([choices.StopString(stop) for stop in stops]), ""
    for place in range(0, 60, 3):
        shown += "" if cut.found else cut.add(text[place : place + 3])
        assert text.startswith(shown) and len(shown) + 10 > min(at, place)
    # if several stop strings end in one piece, the first to start counts
    assert (shown + cut.held).startswith(text[:at]) if not cut.found else len(shown) <= at + 3
    assert cut.found == (at < 60)


@pytest.mark.parametrize("step", [1, 4, 100])
def test_tool_calls_are_separated_from_text(folder, step):
    """In the format of Hermes and Qwen; text that is no call stays text, however it is split."""
    choices, openai = module("choices"), module("openai")
    tokenizer = FileTokenizer(folder / "tokenizer.json")
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "größer"}}\n</tool_call>'
    text = f"I look <tool>.{call}\n{call}\n<tool_call>{{}}</tool_call><tool_call>x"
    request = Request([5], SamplingParams(max_tokens=len(text) + 99), tokens=tokenizer.encode(text))
    request.logprobs, request.top_logprobs = [0.0] * len(request.tokens), [{}] * len(request.tokens)
    choice, whole = choices.Choice(request, tokenizer, [], tools=True), choices.Piece(first=True)
    for count in range(step, len(request.tokens) + step, step):
        count = min(count, len(request.tokens))
        whole.extend(choice.advance(count, "stop" if count == len(request.tokens) else None))
    told = openai.Chat(messages=[]).describe(whole, tokenizer)["message"]
    assert told["content"] == "I look <tool>.<tool_call>{}</tool_call><tool_call>x"
    assert [x["function"] for x in told["tool_calls"]] == [{"name": "look", "arguments": '{"at": "größer"}'}] * 2
    assert whole.finish == "tool_calls" and [x["index"] for x in told["tool_calls"]] == [0, 1]


@pytest.mark.parametrize("text", ["{{ 10 ** (10 ** 9) }}", "{{ 'x' * 10**10 }}"])
def test_a_template_that_exceeds_time_or_memory_is_rejected(text):
    template = module("chat_template")
    with pytest.raises(template.TemplateError):
        template.Renderer({"default": text}, seconds=1).render("default", {}, 100)


def test_a_template_cannot_block_or_crash_the_server():
    template = module("chat_template")
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    text = f"{{% if x == 'loop' %}}{loops}{{% elif x == 'many' %}}{{{{ 'x' * (10 ** n) }}}}{{% endif %}}{{{{ x }}}}"
    renderer = template.Renderer({"default": text}, seconds=1)
    for names in {"x": "loop"}, {"x": "many", "n": 10}, {"x": "many", "n": 3}, {"x": "y" * 101}:
        with pytest.raises(template.TemplateError):
            renderer.render("default", names, 100)
        assert renderer.render("default", {"x": "größer"}, 100) == "größer"
    assert template.Renderer({"default": "{{ cycler.__init__.__globals__ }}"}).variables == {"default": []}


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


def test_a_server_that_compiles_is_alive_and_not_ready(server):
    assert server[2] == [200, 503, 503]
    assert ask(server[1], "/ready")[0] == 200


def test_wrong_keys_hosts_and_origins_are_refused(port):
    def status(path="/v1/models", content=None, **headers):
        found, answer, _ = ask(port, path, content, {name.replace("_", "-"): x for name, x in headers.items()})
        assert re.fullmatch("[0-9a-f]{32}", answer["x-request-id"])
        return found

    keys = ["another", "bearer", "Bearer", "Bearer kéy2", "Basic another", ""]
    before = number(port, r'serve_answers_total\{status="401"\}') if number(port, "serve_queued") else 0
    assert [status(Authorization=key.encode()) for key in keys] == [401] * 6
    assert status(Authorization="BEARER another") == 200
    assert status("/metrics", Authorization="") == 401
    assert number(port, r'serve_answers_total\{status="401"\}') == before + 7
    hosts = ["evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[::1", "localhost.", "127.1"]
    assert [status(Host=host) for host in hosts] == [403] * len(hosts)
    assert [status(Host=host) for host in (f"LocalHost:{port}", "[::1]:80", "10.0.0.1")] == [200] * 3
    origins = ["https://evil.example", "null", f"http://127.0.0.1:{port + 1}"]
    assert [status(Origin=origin) for origin in origins] == [403] * 3
    assert status(Origin=f"http://127.0.0.1:{port}") == 200
    types = ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "application/json, text/plain"]
    assert [status("/v1/completions", {"prompt": "x"}, Content_Type=kind) for kind in types] == [415] * 5
    assert ask(port, "/v1/models", headers={"X-Request-Id": "mine-1"})[1]["x-request-id"] == "mine-1"


def test_cached_prefixes_are_not_shared_between_salts_or_keys(port):
    def cached(key="another", **fields):
        headers = {"Authorization": f"Bearer {key}".encode()}
        asked = {"prompt": list(range(100)), "max_tokens": 1} | fields
        return ask(port, "/v1/completions", asked, headers)[2]["usage"]["prompt_tokens_details"]["cached_tokens"]

    salts = [{}, {"cache_salt": "a"}, {"prompt_cache_key": "a"}, {"prompt_cache_key": "b"}, {"key": "kéy"}]
    assert [cached(**salt) for salt in salts] == [0] * 5
    assert all(cached(**salt) for salt in salts)


def test_logit_biases_and_stop_tokens(port, folder):
    asked = dict(prompt="def ", max_tokens=12, temperature=0, return_token_ids=True, ignore_eos=True)

    def tokens(**fields):
        choice = complete(port, **asked | fields)["choices"][0]
        return choice["token_ids"], choice["finish_reason"]

    free = tokens()[0]
    assert tokens(logit_bias={"7": 100}) == ([7] * 12, "length")
    assert free[0] not in tokens(logit_bias={free[0]: -100})[0]
    assert tokens(stop_token_ids=[free[3]]) == (free[: free.index(free[3]) + 1], "stop")
    late, why = tokens(stop_token_ids=[free[0]], min_tokens=5)
    assert free[0] not in late[:5] and (why == "length" or late.index(free[0]) >= 5)
    eos = FileTokenizer(folder / "tokenizer.json").eos
    forced = dict(logit_bias={eos: 100})
    assert tokens(**forced)[1] == "length" and tokens(**forced, stop="</s>") == ([eos], "stop")


def test_sigterm_lets_requests_end_and_takes_no_more(server):
    """Runs last, as it ends the server of the other tests."""
    process, port, _ = server
    room = ask(port, "/v1/models/small")[2]["max_model_len"]
    long = {
        "messages": [{"role": "user", "content": "x" * (room - 50)}],
        "ignore_eos": True,
    }  # fills the context
    assert ask(port, "/v1/chat/completions", long, seconds=SLOW)[2]["usage"]["total_tokens"] == room
    asked, found = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "n": 3}, []
    thread = threading.Thread(target=lambda: found.append(ask(port, "/v1/completions", asked, seconds=SLOW)))
    thread.start()
    while not number(port, "serve_running"):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    while ask(port, "/ready")[0] == 200:
        time.sleep(0.01)
    assert ask(port, "/health")[0] == 200  # healthy until all requests are answered
    status, headers, answer = ask(port, "/v1/completions", {"prompt": "x"})
    assert status == 503 and headers["retry-after"] and answer["error"]["type"] == "server_error"
    thread.join()
    assert found[0][0] == 200 and found[0][2]["usage"]["completion_tokens"] == 3 * 200
    assert process.wait(20) == 0
