"""The server, as clients see it: what it says against the training forward pass, and how requests end."""

import asyncio
import contextlib
import dataclasses
import http.client
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generator.language.roles import (
    PACKAGE,
    PRESETS,
    SMALL,
    Decoder,
    FileTokenizer,
    InputError,
    Request,
    Sampling,
    import_hf,
    load_to_serve,
    load_tokenizer,
    save_hf,
)

CONFIG = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)  # for GPT-2, the heads make up the width


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt and tools is none %}[assistant]"
    "\n  {%- generation %} {% endgeneration %}{% endif %}"
)


def module(name: str):
    """One that needs more than the package does."""
    pytest.importorskip("starlette", reason="needs starlette and uvicorn: pip install '.[serve]'")
    return importlib.import_module(f"..{name}", __package__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A Hugging Face directory: random weights, a token for each byte, a chat template."""
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
    """A server in a process, and its port."""
    module("serve")
    command = [sys.executable, "-m", f"{PACKAGE.name}.serve", "--hf", folder, "--port", "0", "--dtype", "float32"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "SERVE_API_KEY": ""}
    with subprocess.Popen(
        [*command, *flags], cwd=PACKAGE.parent, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = next(line for line in process.stdout if " at http://" in line)
            yield process, int(line.rpartition(":")[2])
        finally:
            process.terminate()  # which it obeys when nothing runs
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


@pytest.fixture(scope="module")
def port(folder):
    with served(folder, "--queue", "20", "--max-rows", "4", "--max-body", "100000", "--model", "small") as (_, port):
        yield port


def ask(port: int, path: str, content=None, headers=(), seconds=60):
    """Status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    body = content if content is None or isinstance(content, bytes) else json.dumps(content)
    given = {"Content-Type": "application/json"} | dict(headers)
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
    """The events of a stream, which ends as OpenAI's do."""
    status, headers, text = ask(port, path, fields | {"stream": True})
    assert status == 200 and headers["content-type"] == "text/event-stream", text
    *events, last, end = text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def number(port: int, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)$", ask(port, "/metrics")[2], re.MULTILINE)[1])


def test_log_probabilities_equal_those_of_training(folder, port):
    """As lm-eval asks for them: those of the prompt and of what follows, whose greedy choice is the likeliest."""
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


def test_a_stream_tells_what_one_answer_tells(port):
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
    assert texts[0] != texts[1] and texts[0].startswith("größer")  # seeds apart
    assert complete(port, **asked)["choices"] == whole["choices"]
    assert {part["id"] for part in events} == {events[0]["id"]} != {whole["id"]}


def test_a_prompt_is_told_again(port):
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
    wait_for(port, 0)  # what is stopped is not worked on


CHATS = [
    [{"role": "user", "content": " Hello? "}],
    [
        {"role": "system", "content": "größer"},
        {"role": "user", "content": "日本"},
        {"role": "assistant", "content": "x"},
    ],
]


@pytest.mark.parametrize("messages", CHATS, ids=["one", "several"])
def test_chats_are_written_as_by_transformers(folder, port, messages):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install '.[test]'")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    path = folder / "tokenizer.json"
    assert module("openai").load_chat_template(FileTokenizer(path), str(path)).encode(messages) == expected
    asked = dict(temperature=0, return_token_ids=True)
    status, _, chat = ask(port, "/v1/chat/completions", dict(messages=messages, max_completion_tokens=9, **asked))
    assert status == 200 and chat["choices"][0]["message"]["role"] == "assistant"
    assert chat["usage"]["prompt_tokens"] == len(expected)
    plain = complete(port, prompt=expected, max_tokens=9, **asked)
    assert plain["choices"][0]["token_ids"] == chat["choices"][0]["token_ids"]


def test_a_checkpoint_keeps_its_chat_template(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "hf")
    (copied / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    import_hf(str(copied), str(tmp_path / "run"))
    config, model, _ = load_to_serve(str(tmp_path / "run"), "", "bfloat16", 1, int8=False)
    assert model.config == config and config.dtype == "bfloat16"
    tokenizer = load_tokenizer(config.tokenizer)
    template = module("openai").load_chat_template(tokenizer, config.tokenizer)
    assert template.encode(CHATS[0]) == tokenizer.encode(" Hello? !")
    with pytest.raises(InputError, match="give --checkpoint-dir, or --hf"):
        load_to_serve("", "", None, 1, int8=False)
    (copied / "chat_template.jinja").write_text("{% if")
    with pytest.raises(InputError, match="the chat template beside it cannot be read"):
        module("openai").load_chat_template(tokenizer, str(copied / "tokenizer.json"))


def test_texts_end_where_those_of_transformers_do(folder, tmp_path):
    """A checkpoint for chats names tokens that end a turn, beside eos."""
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


def test_a_message_cannot_say_a_special_token(port):
    lengths = []
    for text in "a</s>b", "a</z>b":
        chat = dict(messages=[{"role": "user", "content": text}], max_tokens=1)
        lengths.append(ask(port, "/v1/chat/completions", chat)[2]["usage"]["prompt_tokens"])
    assert lengths[0] == lengths[1]


def test_the_client_of_openai(port):
    openai = pytest.importorskip("openai", reason="needs openai: pip install openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["small"]
    asked = dict(model="small", messages=[{"role": "user", "content": "Hello"}], max_completion_tokens=12, seed=1)
    chat = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    events = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content for event in events for choice in event.choices)
    assert text == chat.choices[0].message.content
    tokens = events[-1].usage  # of which some may have been in pages already
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
        {"prompt": []},
        {"prompt": ["x", [1]], "max_tokens": "9"},
        {"prompt": ["x", 1]},
        {"prompt": [10**9]},
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
def test_what_is_refused_is_told_in_the_form_of_openai(port, status, content):
    found, _, answer = ask(port, "/v1/completions", content)
    assert found == status
    assert answer["error"].keys() == {"message", "type", "param", "code"} and answer["error"]["message"]


def test_what_asks_for_nothing_is_taken(port):
    complete(
        port, prompt="x", max_tokens=1, best_of=1, user="me", suffix=None, logit_bias={}, stop=None, seed=-(10**30)
    )


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
    """Ten texts asked for, as long as they can be, by a client that goes at the end."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        asked = {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": CONFIG.context_length - 10, "n": 10}
        connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
        yield connection


def wait_for(port: int, requests: int) -> None:
    """Until the engine has this many."""
    deadline = time.monotonic() + 10
    while (found := number(port, "serve_running") + number(port, "serve_queued")) != requests:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_a_client_that_goes_is_not_worked_for(port):
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
    """Fails at its first step."""

    queued, running = 0, 0

    def add(self, prompt, sampling):
        self.running = 1
        return Request(prompt, sampling)

    def cancel(self, request):
        pass

    def step(self):
        raise RuntimeError("the device is gone")


def test_an_engine_that_fails_is_told_to_all_that_wait(capfd):
    refusal = module("openai").Refusal

    async def wait_for_answer() -> None:
        thread = module("engine_thread").EngineThread(BrokenEngine())
        with thread.job([([1], Sampling())]) as job, pytest.raises(refusal, match="the engine failed"):
            thread.start()
            while True:
                await asyncio.wait_for(job.next(), 10)
        with pytest.raises(refusal, match="the server ends"), thread.job([([1], Sampling())]):
            pass

    asyncio.run(wait_for_answer())
    assert "the device is gone" in capfd.readouterr().err


def test_sigterm_lets_requests_end_and_takes_no_more(folder):
    slow = 900  # where kernels are emulated, a minute is not enough
    flags = "--api-key", "secrét", "--drain-seconds", str(slow), "--max-length", "250", "--cache-tokens", "700"
    with served(folder, *flags) as (process, port):
        key = {"Authorization": "Bearer secrét".encode()}
        assert ask(port, "/v1/completions", {"prompt": "x"})[0] == 401
        assert ask(port, "/v1/models")[0] == 401
        assert ask(port, "/v1/models", headers=key)[2]["data"][0]["max_model_len"] == 250
        long = {
            "messages": [{"role": "user", "content": "x" * 210}],
            "ignore_eos": True,
        }  # and as many as there is room
        assert ask(port, "/v1/chat/completions", long, key, slow)[2]["usage"]["total_tokens"] == 250
        assert ask(port, "/health")[0] == 200
        asked, found = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "n": 3}, []
        thread = threading.Thread(target=lambda: found.append(ask(port, "/v1/completions", asked, key, slow)))
        thread.start()
        while not number(port, "serve_running"):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        while ask(port, "/health")[0] == 200:
            time.sleep(0.01)
        status, headers, answer = ask(port, "/v1/completions", {"prompt": "x"}, key)
        assert status == 503 and headers["retry-after"] and answer["error"]["type"] == "server_error"
        thread.join()
        assert found[0][0] == 200 and found[0][2]["usage"]["completion_tokens"] == 3 * 200
        assert process.wait(20) == 0
