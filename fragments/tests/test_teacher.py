"""Distillation from a server, against log-probabilities in one pass, and what it reaches."""

import dataclasses
import http.server
import importlib
import json
import threading
import time

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import excludes, requires, setting
from generator.language.roles import (
    WIDE,
    Decoder,
    InputError,
    Request,
    Rollouts,
    SamplingParams,
    make_mesh,
    save_served,
    scoring,
    served,
    teacher_logprobs,
    wide_model,
)

requires("teacher", "tests/engines", "tests/served")
excludes("critic")  # which makes other advantages of them


def rollouts(teacher: str, folder, seed: int) -> Rollouts:
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": "abc"[:n]}) for n in (1, 2, 3, 2)))
    prompts = str(folder / "prompts.jsonl")
    changed = dict(
        data=prompts, eval_data=prompts, objective=setting("policy_objective"), teacher=teacher, group_size=1
    )
    config = dataclasses.replace(WIDE, **changed, completion_tokens=5)
    found = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    student = jax.jit(lambda: Decoder(WIDE, nnx.Rngs(seed)))()
    found.follow(lambda: student, None, None)
    return found


def test_advantages_are_those_of_the_teacher(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("..teacher", __package__), "COMPLETIONS", 3)  # two requests
    save_served(tmp_path / "served")
    student = scoring(rollouts("x", tmp_path, 7).policy(), 32)
    teacher = scoring(wide_model(), 32)
    with served(tmp_path / "served", "--model", "small") as (_, port, _):
        found = rollouts(f"http://localhost:{port}/", tmp_path, 7)
        batch = next(found)
        (held_out,) = found.held_out()
        sums = found.evaluate(found.policy(), held_out)
    apart = []
    for request in found.generate(found.held_out_prompts, [*range(4)], found.policy()):
        places = np.arange(len(request.prompt) - 1, len(request.sequence) - 1), request.tokens
        apart += (student(request.sequence)[places] - teacher(request.sequence)[places]).tolist()
    np.testing.assert_allclose(sums["objective"]["reverse_kl"], np.sum(apart), rtol=1e-4)
    assert sums["targets"] == len(apart) and sums["cross_entropy"] == sums["objective"]["reverse_kl"]
    for row, places in enumerate(batch["weights"] > 0):
        tokens = batch["tokens"][row].tolist()
        targets = batch["targets"][row]
        taught, own = (logprobs(tokens)[np.arange(32), targets][places] for logprobs in (teacher, student))
        np.testing.assert_allclose(batch["advantages"][row][places], taught - own, atol=1e-4)
    assert found.metrics["rollout/reverse_kl"] > 0


@pytest.mark.parametrize("url", ["http://localhost:1", "localhost:8000", "x", "http://", "http://a b", "file:///etc"])
def test_no_teacher_is_told(url, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(InputError, match=f"--teacher {url}: (does not answer|gives no log-probabilities): .*: start a"):
        teacher_logprobs(url, [Request([1], SamplingParams(), [2])])


SCORES = (
    [-1.0, -1.0],
    [None, -1.0, -1.0, -1.0],
    [None, [-1.0], -1.0],
    [None, 3.0, -1],
    [None, -1e9, -1],
    [None, "x", -1],
)


def ask_teacher(*answers: tuple[int, object]) -> list[list[float]]:
    """Asks for the score of a token a server that gives these statuses and scores, one after the other."""

    class Teacher(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            status, scores = waiting.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"index": 0, "logprobs": {"token_logprobs": scores}}]}).encode())

        def log_message(self, *_):
            pass

    waiting = [*answers]
    with http.server.HTTPServer(("localhost", 0), Teacher) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return teacher_logprobs(f"http://localhost:{server.server_port}", [Request([1], SamplingParams(), [2])])
        finally:
            server.shutdown()


@pytest.mark.parametrize("scores", [*SCORES, None, 3])
def test_a_teacher_of_other_tokens_is_refused(scores):
    with pytest.raises(InputError, match="gives no log-probabilities"):
        ask_teacher((200, scores))


def test_a_busy_teacher_is_asked_again(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    scored = 200, [None, -2.0, -1.0]
    assert ask_teacher((429, None), (503, None), (408, None), scored) == [[-2.0]]
    with pytest.raises(InputError, match=r"does not answer: .*404"):
        ask_teacher((404, None), scored)
