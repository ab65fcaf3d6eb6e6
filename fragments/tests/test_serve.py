"""The server as clients see it: its log-probabilities are those of training; how requests end."""

import json
import re
import signal
import threading
import time

import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    WIDE,
    FileTokenizer,
    ask,
    complete,
    long_answers,
    number,
    save_served,
    scoring,
    served,
    stream,
    wait_for,
    wide_model,
)

requires("serve")

SLOW = 900  # seconds; interpreted kernels take more than a minute


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "hf"
    save_served(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    sizes = "--queue", "20", "--max-sequences", "4", "--max-body", "100000", "--drain-seconds", str(SLOW)
    with served(folder, *sizes, "--model", "small", "--api-key", "kéy", "another") as found:
        yield found


@pytest.fixture(scope="module")
def port(server):
    return server[1]


def test_log_probabilities_equal_those_of_training(port):
    """Of the prompt and of a greedy continuation, as lm-eval requests them."""
    prompts = [[256, *range(40, 70)], [256, 5, 250, 7]]
    asked = dict(prompt=prompts, max_tokens=6, temperature=0, logprobs=3, echo=True, return_token_ids=True)
    logprobs = scoring(wide_model(), 40)
    choices = complete(port, **asked, ignore_eos=True)["choices"]
    for prompt, choice in zip(prompts, choices, strict=True):
        tokens = choice["token_ids"]
        assert tokens[: len(prompt)] == prompt and len(tokens) == len(prompt) + 6
        expected = logprobs(tokens)
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


def test_each_choice_of_each_prompt_is_sampled_independently(port):
    def texts(**fields):
        asked = dict(prompt=["def "] * 3, n=2, max_tokens=20, ignore_eos=True, return_token_ids=True)
        return [tuple(choice["token_ids"]) for choice in complete(port, **asked | fields)["choices"]]

    seeded = texts(seed=5)
    assert len({*seeded, *texts(), *texts(), *texts(seed=6)}) == 4 * 6  # choice 2 of seed 5 is not choice 1 of seed 6
    assert texts(seed=5) == seeded and texts(seed=5, n=1) == seeded[::2] and texts(seed=5, prompt="def ") == seeded[:2]


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
X = {"role": "user", "content": "x"}
CALLED = {"role": "assistant", "content": None, "audio": None, "function_call": None, "tool_calls": [CALL]}
OTHER = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "tool_calls": None}
CHATS = {
    "one": dict(messages=[{"role": "user", "content": " Hello? "}]),
    "several": dict(messages=[{"role": "system", "content": "größer"}, {**X, "name": None}, OTHER]),
    "tools": dict(messages=[X, CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "日本"}], tools=[TOOL]),
    "continued": dict(
        messages=[X, {"role": "assistant", "content": "It is "}],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "variables": dict(messages=[X], chat_template_kwargs={"mood": "!"}),
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
        *({"prompt": "x", "max_tokens": -1}, {"prompt": "x", "temperature": -1}, {"prompt": "x", "unheard_of": 1}),
        *({"prompt": "x", "suffix": "y"}, {"prompt": "x", "tools": [TOOL]}),
        *({"prompt": "x", "logit_bias": {"5": 101}}, {"prompt": "x", "logit_bias": {"1000000": 1}}),
        *({"prompt": "x" * 5000}, {"prompt": [5] * 600}, {"prompt": []}, {"prompt": ["x", 1]}, {"prompt": [-1]}),
        *({"prompt": ["x", [1]], "max_tokens": "9"}, {"prompt": [10**9]}, {"prompt": [WIDE.vocab_size]}),
        *({"prompt": "x", "stop": ""}, {"prompt": ["x"] * 15, "n": 2}, {}, [], b"{"),
        *(b'{"prompt": "\xff"}', b'{"prompt": "x", "top_p": NaN}', b"[" * 90_000),
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
    assert answer["error"]["param"] or status == 413 or not isinstance(content, dict)


CODES = {
    "unknown_parameter": [{"unheard_of": 1}, {"tools": [TOOL]}],
    "invalid_type": [{"n": "x"}, {"seed": "a"}, {"stream": 1}],
    "integer_above_max_value": [{"n": 129}, {"logprobs": 21}],
    "integer_below_min_value": [{"n": 0}, {"max_tokens": -1}, {"top_k": -2}],
    "decimal_above_max_value": [{"temperature": 3}, {"top_p": 1.1}],
    "decimal_below_min_value": [{"temperature": -1}, {"top_p": 0}],
    "string_above_max_length": [{"stop": "x" * 257}],
    "array_above_max_length": [{"stop": ["x"] * 17}],
    "unsupported_value": [{"best_of": 2}, {"suffix": "y"}],
    "model_not_found": [{"model": "gpt-4"}],
    "object_above_max_properties": [{"logit_bias": {str(i): 1 for i in range(513)}}],
    "context_length_exceeded": [
        *({"prompt": "x" * 600}, {"prompt": "x" * 5000}, {"prompt": [5] * 600}, {"max_tokens": 10**6}),
        *({"prompt": [5] * WIDE.context_length, "max_tokens": 1}, {"prompt": [5] * 600, "max_tokens": 0}),
    ],
}


@pytest.mark.parametrize("code", CODES)
def test_refusals_have_openais_codes(port, code):
    for fields in CODES[code]:
        _, _, answer = ask(port, "/v1/completions", {"prompt": "x"} | fields)
        assert answer["error"]["code"] == code and answer["error"]["param"] in (*fields, "prompt"), answer


LONG = {
    "tokens": [{"role": "user", "content": "x" * 600}],
    "characters": [{"role": "user", "content": "x" * 90_000}],
    "special tokens": [{"role": "user", "content": "</s>" * 9000}],
    "messages": [{"role": "user", "content": ""}] * 1500,
}


@pytest.mark.parametrize("case", LONG)
def test_a_chat_that_is_too_long_says_so_as_openai_does(port, case):
    room = ask(port, "/v1/models/small")[2]["max_model_len"]
    status, _, answer = ask(port, "/v1/chat/completions", {"messages": LONG[case]})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "context_length_exceeded", "messages")
    assert f"this model's maximum context length is {room} tokens, but " in answer["error"]["message"]


def test_a_text_that_fills_the_context_is_scored(port):
    """Without a token of an answer, as in training; and so is one of a single token."""
    room = ask(port, "/v1/models/small")[2]["max_model_len"]
    logprobs = scoring(wide_model(), room)
    for tokens in [5 + i % 200 for i in range(room)], [5, 6], [5]:
        answer = complete(port, prompt=tokens, max_tokens=0, echo=True, logprobs=2, return_token_ids=True)
        (choice,) = answer["choices"]
        assert choice["token_ids"] == tokens and choice["finish_reason"] == "length"
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (len(tokens), 0)
        first, *found = choice["logprobs"]["token_logprobs"]
        expected = logprobs(tokens)[np.arange(len(tokens) - 1), tokens[1:]]
        assert first is None
        np.testing.assert_allclose(found, expected, atol=1e-4)
    (choice,) = complete(port, prompt="x", max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")


def chat(port: int, **fields) -> tuple[int, dict]:
    status, _, answer = ask(port, "/v1/chat/completions", {"messages": [X], "max_tokens": 2} | fields)
    return status, answer


def test_chats_take_what_clients_send(port):
    """Hints that have no effect here, more tokens than are left, and half of a surrogate pair in a call."""
    hints = dict(parallel_tool_calls=False, reasoning_effort="low", verbosity="low", prediction={"type": "content"})
    assert chat(port, **hints)[0] == 200
    room = ask(port, "/v1/models/small")[2]["max_model_len"]
    long = [{"role": "user", "content": "x" * (room - 60)}]
    status, answer = chat(port, messages=long, max_tokens=10**6, ignore_eos=True)
    assert status == 200 and answer["usage"]["total_tokens"] == room
    called = CALLED | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": '{"a": "\\ud83d"}'}}]}
    assert chat(port, messages=[X, called])[0] == 200


def test_what_chats_cannot_be_given_is_told_in_plain_words(port):
    picture = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "http://a/b.png"}}]
    status, answer = chat(port, messages=[{"role": "user", "content": picture}])
    assert status == 400 and "takes text alone, and no part of type 'image_url'" in answer["error"]["message"]
    for deep in '{"a":' * 10_000, "[" * 90_000, '{"a":' * 1500 + "1" + "}" * 1500:
        called = CALLED | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": deep}}]}
        status, answer = chat(port, messages=[X, called])
        assert status == 400 and "nested too deeply" in answer["error"]["message"]


def test_fields_without_effect_are_accepted(port):
    nothing = dict(best_of=1, user="me", suffix=None, logit_bias={}, stop=None, response_format={"type": "text"})
    asked = dict(prompt="größer als 日本", max_tokens=1, echo=True, seed=-(10**30), top_k=10**6, tools=None)
    choice = complete(port, **asked, **nothing)["choices"][0]
    assert choice["text"].startswith("größer als 日本") and choice["logprobs"] is None


def test_other_types_and_paths(port):
    assert ask(port, "/v1/completions", b"prompt=x", {"Content-Type": "text/plain"})[0] == 415
    assert ask(port, "/v1/completions")[0] == 405
    assert ask(port, "/v1/unknown")[2]["error"]["type"] == "invalid_request_error"
    asked = {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}
    assert ask(port, "/v1/chat/completions", asked)[2]["error"]["param"] == "top_logprobs"


def test_the_page_needs_no_other_host(port):
    status, headers, page = ask(port, "/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "<form>" in page and not re.search(r"https?:|src=|href=|@import", page)


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


def test_a_server_that_compiles_is_alive_and_not_ready(server):
    assert server[2] == [200, 503, 503] and ask(server[1], "/ready")[0] == 200


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
    long = {"messages": [{"role": "user", "content": "x" * (room - 50)}], "ignore_eos": True}  # fills the context
    assert ask(port, "/v1/chat/completions", long, seconds=SLOW)[2]["usage"]["total_tokens"] == room
    asked = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "n": 3}
    found = []
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
