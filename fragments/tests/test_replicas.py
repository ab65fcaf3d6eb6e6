"""Two replicas behind Ray Serve, one of which is killed under load; not where Ray is missing."""

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, WIDE, ask, module, save_served

requires("ray_serve/replicas")

serve = pytest.importorskip("ray.serve")

SECONDS = 600  # in which a replica starts
LONG = {"prompt": "x", "ignore_eos": True, "max_tokens": WIDE.context_length - 10, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    module("server")
    folder = tmp_path_factory.mktemp("replicas") / "hf"
    save_served(folder)
    return folder


def start(*flags: str, **variables: str) -> subprocess.Popen:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "RAY_ADDRESS": "local", "PYTHONPATH": str(PACKAGE.parent)}
    environment |= variables
    command = [sys.executable, "-m", f"{PACKAGE.name}.launch.replicas", "--cpus", "0.1", *flags]
    return subprocess.Popen(command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=2, text=True)


@pytest.fixture(scope="module")
def port(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = "--hf", str(folder), "--port", str(port), "--model", "small", "--dtype", "float32"
    flags += "--max-sequences", "4", "--chunk", "16"  # few shapes to compile
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder.parent), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with start("--replicas", "2", "--", *flags, **cache) as process:
        try:
            assert any(line == f"2 replicas of small at http://127.0.0.1:{port}\n" for line in process.stdout)
            yield port
        finally:
            process.terminate()
        assert process.wait(60) == 0 and not servers(folder)


def servers(folder: Path) -> list[int]:
    """Returns the processes that serve this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [int(path.parent.name)] if {f"{PACKAGE.name}.serve".encode(), str(folder).encode()} <= {*words} else []
    return found


def replica_of(port: int, user: str) -> str:
    status, headers, told = ask(
        port, "/v1/completions", {"prompt": "x", "max_tokens": 1, "user": user}, seconds=SECONDS
    )
    assert status == 200, told
    return headers["x-replica"]


def test_a_session_stays_where_its_prefix_is(port):
    replicas = set()
    for i in range(12):
        messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": f"question {i} " * 4}]
        turns = []
        for _ in range(3):
            asked = {"messages": messages, "max_tokens": 4}
            status, headers, answer = ask(port, "/v1/chat/completions", asked)
            assert status == 200, answer
            turns.append((headers["x-replica"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]))
            messages = [
                *messages,
                answer["choices"][0]["message"] | {"content": "so"},
                {"role": "user", "content": "?"},
            ]
        assert len({replica for replica, _ in turns}) == 1 and turns[1][1] > 32 and turns[2][1] > 32, turns
        replicas.add(turns[0][0])
    assert len(replicas) == 2


def test_refusals_are_those_of_the_server(port):
    for path, content, headers, status in (
        ("/v1/completions", b"{", {}, 400),
        ("/v1/completions", [{"role": "user"}], {}, 400),
        ("/v1/completions", {"messages": 3}, {}, 400),
        ("/v1/completions", b" " * 5 * 2**20, {}, 413),
        ("/v1/completions", {}, {"Origin": "http://elsewhere.org"}, 403),
        ("/v1/models", None, {"Host": "elsewhere.org"}, 403),
        ("/nothing", None, {}, 404),
        ("/ready", None, {}, 200),
    ):
        found, _, told = ask(port, path, content, headers)
        assert found == status and (status == 200 or told["error"]["message"]), told


def numbers(port: int, *names: str) -> float:
    """Returns the sum of these metrics over both replicas."""
    found = {}
    while len(found) < 2:
        _, headers, text = ask(port, "/metrics", headers={"x-session-id": str(time.monotonic())}, seconds=SECONDS)
        found[headers["x-replica"]] = text
    lines = [line.rpartition(" ") for text in found.values() for line in text.splitlines()]
    return sum(float(number) for name, _, number in lines if name in names)


def test_a_client_that_leaves_ends_its_request(port):
    """One of its four choices alone would take long."""
    for i in range(8):
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps(LONG | {"stream": i % 2 == 0, "n": 4}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert i % 2 or client.recv(15) == b"HTTP/1.1 200 OK"
            time.sleep(i % 2 * 0.5)
    deadline = time.monotonic() + SECONDS
    while numbers(port, "serve_running", "serve_queued"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert numbers(port, 'serve_requests_total{finish="cancelled"}') >= 8


def test_of_a_killed_replica_only_begun_streams_are_lost(port, folder):
    of_replica = {replica_of(port, user): user for user in map(str, range(12))}
    assert len(of_replica) == 2
    killed, end = threading.Event(), threading.Event()
    streams, answers = [], []

    def send(i: int) -> None:
        user = [*of_replica.values()][i % 2]
        while not end.is_set():
            late = killed.is_set()
            is_stream = i < 4
            status, headers, told = ask(
                port, "/v1/completions", LONG | {"user": user, "stream": is_stream}, seconds=SECONDS
            )
            assert status == 200, told
            if not is_stream:
                answers.append((late, headers["x-replica"], told["choices"][0]["text"]))
                continue
            *events, done = told.removesuffix("\n\n").split("\n\n")
            assert done == "data: [DONE]"
            each = [json.loads(event.removeprefix("data: ")) for event in events]
            error = each[-1].get("error")
            text = "".join(event["choices"][0]["text"] for event in each if "error" not in event)
            streams.append((late, headers["x-replica"], text, error))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        sent = [threads.submit(send, i) for i in range(8)]
        try:
            while len({replica for _, replica, _, _ in streams}) < 2:
                time.sleep(0.05)
                assert not any(x.done() for x in sent), [x.exception() for x in sent if x.done()]
            victim, other = servers(folder)
            os.kill(victim, signal.SIGKILL)
            killed.set()
            deadline = time.monotonic() + SECONDS
            while len(servers(folder)) < 2 or len({replica_of(port, user) for user in map(str, range(12))}) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            end.set()
        for x in sent:
            x.result()
    assert other in servers(folder) and victim not in servers(folder)
    wanted = answers[0][2]
    lost = [stream for stream in streams if stream[3]]
    assert all(text == wanted for _, _, text in answers) and all(text == wanted for _, _, text, e in streams if not e)
    assert lost and all(e["type"] == "server_error" and wanted.startswith(text) for _, _, text, e in lost)
    assert not any(late for late, *_ in lost) and len({replica for _, replica, _, _ in lost}) == 1
    gone = lost[0][1]
    later = {replica for late, replica, _, _ in streams if late} | {replica for late, replica, _ in answers if late}
    assert gone not in later and later & of_replica.keys()


def test_mistakes_are_told_before_ray_is_asked(folder):
    for flags in (["--replicas", "0", "--"], ["--", "--host", "0.0.0.0"], ["--", "--port", "0"], ["--", "--nothing"]):
        with start(*flags, "--hf", str(folder)) as process:
            assert process.wait(60) == 2
