"""Requests that are meant to hold up others, one at a time, while an honest client has a text streamed to it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from robustness.serving import CLIENT_SECONDS, SPECIAL, answer, request

LONGEST_GAP = 1.0  # seconds
MIB = 2**20


class Honest(threading.Thread):
    """Asks for one long text after another, and measures the longest time between two parts of one."""

    def __init__(self, port: int):
        super().__init__(daemon=True)
        self.port, self.gap, self.parts, self.ended = port, 0.0, 0, False

    def run(self) -> None:
        asked = {"prompt": "x", "max_tokens": 4000, "stream": True, "ignore_eos": True}
        sent = request("/v1/completions", json.dumps(asked).encode()).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        while not self.ended:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                connection.sendall(sent)
                connection.recv(65536)
                last = time.monotonic()
                while not self.ended and connection.recv(65536):
                    self.gap, last = max(self.gap, time.monotonic() - last), time.monotonic()
                    self.parts += 1


@pytest.fixture(scope="module")
def honest(server):
    client = Honest(server[1])
    client.start()
    yield client
    client.ended = True
    client.join(60)


def completion(**fields) -> bytes:
    return request("/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1} | fields).encode())


def chat(*contents: object, **fields) -> bytes:
    messages = [{"role": "user", "content": content} for content in contents]
    return request("/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 1} | fields).encode())


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


def tool(parameters: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


STOPS = [letter * 255 + "!" for letter in "abcdefghijklmnop"]
# what is sent, and the statuses that may answer it
SENT: dict[str, tuple[Callable[[], bytes], set[int]]] = {
    "a long message": (lambda: chat("a" * (4 * MIB - 200)), {400}),
    "a long message of special tokens": (lambda: chat(SPECIAL[9] * (4 * MIB // 30)), {400}),
    "a long message of beginnings of them": (lambda: chat("<|reserved_special_token_" * (4 * MIB // 30)), {400}),
    "many messages": (lambda: chat(*[""] * 100_000), {400}),
    "many parts": (lambda: chat([{"type": "text", "text": ""}] * 130_000), {400}),
    "many tools": (lambda: chat("x", tools=[tool({})] * 50_000), {400}),
    "a message of special tokens": (lambda: chat(SPECIAL[9] * 100), {200}),
    "many brackets": (lambda: request("/v1/completions", b"[" * 4 * MIB), {400}),
    "many objects": (
        lambda: request("/v1/completions", b'{"prompt": "x", "metadata": {"a":' + b'{"a":' * (MIB // 2)),
        {400},
    ),
    "nested tools": (lambda: chat("x", tools=[tool(nested(800))]), {200, 400}),
    "many tokens": (lambda: completion(prompt=[5] * MIB), {400}),
    "many prompts": (lambda: completion(prompt=["x"] * (MIB // 2)), {400}),
    "a long prompt": (lambda: completion(prompt="x" * (4 * MIB - 100)), {400}),
    "a prompt of spaces": (lambda: completion(prompt=" " * (4 * MIB - 100)), {400}),
    "a prompt that just fits": (lambda: completion(prompt="\u65e5 " * 1000, n=16), {200}),
    "many stop strings": (lambda: completion(prompt="x", stop=STOPS, max_tokens=200, n=4), {200}),
    "many biases": (lambda: completion(logit_bias={str(i): 1 for i in range(200_000)}), {400}),
    "all biases": (lambda: completion(logit_bias={str(i): 1 for i in range(512)}, n=16, max_tokens=50), {200}),
    "all log-probabilities": (
        lambda: completion(prompt=[5] * 1500, echo=True, logprobs=20, n=2, max_tokens=90, ignore_eos=True),
        {200},
    ),
    "a stream of all log-probabilities": (
        lambda: completion(prompt=[5] * 1500, echo=True, logprobs=20, stream=True).replace(
            b"Host", b"Connection: close\r\nHost"
        ),
        {200},
    ),
    "a template of one's own": (lambda: chat("x", chat_template="{{ 10 ** (10 ** 9) }}"), {400}),
    "names of a template": (lambda: chat("x", chat_template_kwargs={"messages": []}), {400}),
    "names of a function": (lambda: chat("x", chat_template_kwargs={"self": 1, "name": 1, "most": 1}), {200}),
    "a long name": (lambda: request("/v1/models/" + "a" * 10_000, b"{}"), {405}),
    "a long host": (lambda: b"GET /health HTTP/1.1\r\nHost: " + b"a" * 10_000 + b"\r\n\r\n", {403}),
    "a long key": (lambda: b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + b"a" * MIB, {400}),
}
QUICK = ["a long message of beginnings of them", "many messages", "many objects", "many stop strings", "many prompts"]
QUICK += ["all log-probabilities", "nested tools", "many biases", "names of a function", "a template of one's own"]


def holds_nobody_up(honest: Honest, act: Callable[[], None]) -> None:
    while honest.parts < 2:
        time.sleep(0.01)
    honest.gap, before = 0.0, honest.parts
    act()
    deadline = time.monotonic() + 60
    while honest.parts < before + 20:
        assert time.monotonic() < deadline, "the stream stands still"
        time.sleep(0.01)
    assert honest.gap <= LONGEST_GAP, honest.gap


@pytest.mark.parametrize("case", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in SENT])
def test_a_hostile_request_holds_nobody_up(server, honest, case):
    make, statuses = SENT[case]
    sent, got = make(), b""

    def ask() -> None:
        nonlocal got
        got = answer(server[1], sent)

    holds_nobody_up(honest, ask)
    assert got and int(got.split()[1]) in statuses, got[:300]
    assert server[0].poll() is None


def time_until_closed(port: int, sent: bytes) -> float:
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        while connection.recv(65536):
            pass
    return time.monotonic() - begun


GOOD = request("/v1/completions", b'{"prompt": "x", "max_tokens": 1}')
SLOW = {"a head": GOOD[:20], "a second head": GOOD + b"P", "a body": GOOD[:-5], "a second body": GOOD + GOOD[:-5]}
REFUSED = b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
TOO_LONG = REFUSED.replace(b"nothing", b"completions").replace(
    b"Content-L", b"Content-Type: application/json\r\nContent-L"
)


@pytest.mark.parametrize("case", [x if x == "a second head" else pytest.param(x, marks=pytest.mark.slow) for x in SLOW])
def test_a_slow_request_ends(server, honest, case):
    times = []
    holds_nobody_up(honest, lambda: times.append(time_until_closed(server[1], SLOW[case])))
    assert times[0] < 3 * CLIENT_SECONDS + 3


@pytest.mark.parametrize("head", [REFUSED, TOO_LONG], ids=["no path", "too long"])
def test_a_body_that_is_refused_is_not_swallowed(server, honest, head):
    taken = 0

    def send() -> None:
        nonlocal taken
        with socket.create_connection(("127.0.0.1", server[1]), timeout=10) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(head)
                for _ in range(1000):
                    connection.sendall(b"x" * 100_000)
                    taken += 100_000

    holds_nobody_up(honest, send)
    assert taken < 20 * MIB  # with what lies in buffers of the system


def test_refusals_are_logged_and_counted(server, model_folder):
    _, port = server
    answer(
        port, request("/v1/completions", b'{"prompt": "x", "n": "\\n"}').replace(b"Host", b"X-Request-Id: mine\r\nHost")
    )
    deadline, found = time.monotonic() + 10, []
    while not found and time.monotonic() < deadline:  # a line is written after its answer was sent
        found = [line for line in (model_folder / "log").read_text().splitlines() if " mine " in line]
    assert len(found) == 1 and " 400 POST /v1/completions 127.0.0.1 " in found[0] and "$.n" in found[0]
    numbers = answer(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").decode()
    assert 'serve_answers_total{status="400"}' in numbers
