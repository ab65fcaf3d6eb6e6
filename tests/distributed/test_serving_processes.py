"""A server over two processes of two devices each: the answers of one device, and what clients are told at its end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from whole import whole_packages

from distributed.jobs import finish, start
from generator.checkpoint.loading import load_package

SIZES = dict(width=32, layers=2, heads=4, kv_heads=4, head_size=8, mlp_width=64, context_length=256, vocab_size=260)
FLAGS = ["--tokenizer=bytes", "--port=0", "--max-sequences=4", "--chunk=4", "--page-size=4", "--dtype=float32"]
SHARED = [7 + i % 200 for i in range(30)]  # longer than chunks, and whole pages of it are shared
SAMPLED = dict(temperature=1.0, seed=5, top_p=0.9, repetition_penalty=1.2, logit_bias={"9": 2})
REQUESTS = [
    dict(prompt=[*SHARED, 1], temperature=0, logprobs=3),
    dict(prompt=[*SHARED, 2], **SAMPLED),
    dict(prompt=[3], **SAMPLED, n=2),
    dict(prompt=[4, 5, 6], temperature=0, echo=True, logprobs=1),
    dict(prompt=[*SHARED, 3, 4, 5], temperature=0),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A model whose likeliest tokens are likelier than rounding, and a folder of compiled programs."""
    jax, nnx = pytest.importorskip("jax"), pytest.importorskip("flax.nnx")
    folder = tmp_path_factory.mktemp("served")
    package = load_package(whole_packages() / "llama2_cpu")
    sizes = dataclasses.replace(package.config.PRESETS["tiny"], **SIZES)
    graph, state = nnx.split(package.model.Decoder(sizes, nnx.Rngs(0)))
    package.huggingface.save_hf(sizes, nnx.merge(graph, jax.tree.map(lambda x: 3 * x, state)), folder / "hf")
    return folder


@contextlib.contextmanager
def served(saved: Path, processes: int, *flags: str) -> Iterator[tuple[list[subprocess.Popen], int]]:
    """The processes of a server with four devices, or of one with one, and its port."""
    devices = 2 if processes > 1 else 1
    tensor = f"--mesh-tensor={processes * devices}"
    arguments = ["-m", "llama2_cpu.serve", "--hf", str(saved / "hf"), *FLAGS, tensor, *flags]
    job = start(arguments, saved / "cache", processes, devices)
    try:
        told = []
        for line in job[0].stdout:
            told.append(line)
            if " at http://" in line:
                break
        else:
            pytest.fail("".join([*told, *(other.communicate(timeout=60)[0] for other in job[1:])]))
        yield job, int(told[-1].rpartition(":")[2])
    finally:
        for process in job:
            process.kill()
            process.communicate()


def ask(port: int, **fields) -> tuple[int, dict]:
    body = json.dumps(dict(max_tokens=12, ignore_eos=True, return_token_ids=True) | fields)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def begun(port: int, tokens: int = 250) -> Iterator[http.client.HTTPResponse]:
    """An answer of which the first of many tokens is there; it is given up at the end."""
    body = json.dumps(dict(prompt=[8], max_tokens=tokens, ignore_eos=True, stream=True))
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            assert answer.readline().startswith(b"data: ")
            yield answer


def answers(port: int) -> list[dict]:
    """Of all requests at once, while one that was begun is given up."""
    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as threads:
        with begun(port):
            sent = [threads.submit(ask, port, **request) for request in REQUESTS]
        got = [future.result() for future in sent]
    assert [status for status, _ in got] == [200] * len(REQUESTS), got
    return [choice for _, answer in got for choice in answer["choices"]]


def test_a_server_of_two_processes_answers_as_one_device_and_tells_when_one_is_gone(saved):
    with served(saved, 1) as (_, port):
        wanted = answers(port)
    with served(saved, 2) as (job, port):
        got = answers(port)
        assert [x["token_ids"] for x in got] == [x["token_ids"] for x in wanted]
        for here, there in zip(got, wanted, strict=True):
            if here["logprobs"]:
                scores = [[x or 0 for x in choice["logprobs"]["token_logprobs"]] for choice in (here, there)]
                np.testing.assert_allclose(*scores, atol=1e-4)

        with concurrent.futures.ThreadPoolExecutor(1) as threads, begun(port) as streamed:
            whole = threads.submit(ask, port, prompt=[9], max_tokens=250)
            job[1].kill()
            killed = time.monotonic()
            rest = streamed.read()
            assert b'"message":"the engine failed' in rest and b"[DONE]" in rest
            status, told = whole.result()
            assert status in (500, 503) and "the engine failed" in told["error"]["message"]
        output, _ = job[0].communicate(timeout=60)
        assert job[0].returncode == 1 and time.monotonic() - killed < 20, output


def test_a_signal_to_all_ends_all_once_answers_are_there(saved):
    with served(saved, 2) as (job, port):
        with begun(port, 40) as streamed:
            for process in job:
                process.send_signal(signal.SIGTERM)
            rest = streamed.read()
        assert b"error" not in rest and b"[DONE]" in rest
        finish(job)


@pytest.mark.slow
def test_drafts_and_int8_are_served_too_and_an_idle_server_sees_who_is_gone(saved):
    flags = ["--draft-tokens=2", "--int8", "--int8-kv-cache"]
    with served(saved, 1, *flags) as (_, port):
        wanted = answers(port)
    with served(saved, 2, *flags) as (job, port):
        assert [x["token_ids"] for x in answers(port)] == [x["token_ids"] for x in wanted]
        job[1].kill()
        output, _ = job[0].communicate(timeout=60)
        assert job[0].returncode == 1 and "error: a process of the job has ended: start all of them" in output


@pytest.mark.slow
def test_process_0_that_is_gone_ends_the_others(saved):
    with served(saved, 2) as (job, _):
        job[0].kill()
        output, _ = job[1].communicate(timeout=60)
        assert job[1].returncode == 1 and "error: process 1 cannot follow process 0: it is gone\n" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "last", "message"),
    [
        (["--mesh-tensor=2"], [], "--mesh-tensor 2: 2 processes have 4 devices, and each takes part: give 4"),
        ([], ["--page-size=8"], "the processes of the job differ in their settings: start all of them with the same"),
    ],
)
def test_what_cannot_be_served_is_refused_by_all(saved, flags, last, message):
    arguments = ["-m", "llama2_cpu.serve", "--hf", str(saved / "hf"), *FLAGS, "--mesh-tensor=4", *flags]
    for output in finish(start(arguments, saved / "cache", last=last), 2):
        assert f"error: {message}\n" in output


@pytest.mark.slow
def test_prompts_of_a_file_are_continued_as_by_one_device(saved, tmp_path):
    (tmp_path / "prompts").write_text("def main\nimport os\nclass A(B):\n")
    arguments = ["-m", "llama2_cpu.generate", "--hf", str(saved / "hf"), "--prompts", str(tmp_path / "prompts")]
    arguments += ["--tokenizer=bytes", "--max-tokens=8", "--dtype=float32"]
    (wanted,) = finish(start(arguments, saved / "cache", 1, 1))
    got, other = finish(start([*arguments, "--mesh-tensor=4"], saved / "cache"))
    assert [line for line in got.splitlines() if line.startswith("{")] == wanted.splitlines()[-3:] and "{" not in other
