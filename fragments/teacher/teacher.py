"""On-policy distillation: the advantage of a sampled token is how much likelier a teacher finds it (nats).

Source: Gu et al. 2024, arXiv 2306.08543, section 2.2 (reverse KL by policy gradient); Agarwal et al. 2024, arXiv
2306.13649 (completions of the student).
"""

import concurrent.futures
import functools
import http.client
import itertools
import json
import time
import urllib.error
import urllib.request

import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import InputError, Request, sum_and_count

requires("rollouts")


class RolloutConfig:
    teacher: str = ""  # URL of a server with the same tokenizer, such as http://localhost:8000; "": rewards


RETRY_AFTER = 1, 2, 4, 8  # seconds before a server that fails or is busy is asked again


BUSY = 408, 429  # HTTP statuses


COMPLETIONS = 16  # in a request


START_ONE = "start a server of a model with the same tokenizer"


def teacher_logprobs(url: str, requests: list[Request]) -> list[list[float]]:
    """Asks a server for its log-probabilities of sampled tokens. Raises InputError if it gives none."""
    fields = {"prompt": [request.sequence for request in requests], "max_tokens": 1, "echo": True, "logprobs": 0}
    content = json.dumps(fields).encode()
    header = {"Content-Type": "application/json"}
    for seconds in (*RETRY_AFTER, 0):
        try:
            http_request = urllib.request.Request(f"{url.rstrip('/')}/v1/completions", content, header)
            with urllib.request.urlopen(http_request, timeout=600) as answer:
                choices = json.load(answer)["choices"]
            scored = {choice["index"]: choice["logprobs"]["token_logprobs"] for choice in choices}
            logprobs = [[float(x) for x in scored[i][len(one.prompt) : -1]] for i, one in enumerate(requests)]
            if any(len(scored[i]) != len(one.sequence) + 1 for i, one in enumerate(requests)):  # and the token it adds
                raise ValueError("it scored other tokens")
            if not all(-1e4 <= x <= 1e-3 for scores in logprobs for x in scores):
                raise ValueError("it gives numbers that are no log-probabilities")
            return logprobs
        except (OSError, http.client.HTTPException) as error:
            is_response = isinstance(error, urllib.error.HTTPError)
            if not seconds or (is_response and error.code < 500 and error.code not in BUSY):
                body = error.read(300).decode(errors="replace") if is_response else ""
                problem = f"--teacher {url}: does not answer: {error!r} {body}".strip()
                raise InputError(f"{problem}: {START_ONE}") from None
            time.sleep(seconds)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"--teacher {url}: gives no log-probabilities: {error!r}: {START_ONE}") from None
    raise AssertionError


def teacher_advantages(url: str, requests: list[Request]) -> list[list[float]]:
    """Returns by how much likelier the teacher finds each sampled token (nats)."""
    parts = [requests[start : start + COMPLETIONS] for start in range(0, len(requests), COMPLETIONS)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        taught = itertools.chain.from_iterable(pool.map(functools.partial(teacher_logprobs, url), parts))
        return [np.subtract(x, y.logprobs).tolist() for x, y in zip(taught, requests, strict=True)]


@splice("Rollouts.rewards")
def _(self, config):
    if not config.teacher:
        proceed()
    elif config.reward:
        raise InputError("--teacher and --reward: give one of them")


@splice("Rollouts.advantages")
def _(self, requests, sums, advantages):
    if self.config.teacher:
        advantages = teacher_advantages(self.config.teacher, requests)
        sums["rollout/reverse_kl"] = sum_and_count(-np.concatenate(advantages))
    else:
        proceed()


@splice("Rollouts.evaluate")
def _(self, requests, result):
    if self.config.teacher:
        advantages = teacher_advantages(self.config.teacher, requests)
        loss, count = -sum(map(sum, advantages)), sum(map(len, advantages))
        result = {"cross_entropy": loss, "targets": count, "objective": {"reverse_kl": loss}}
    else:
        proceed()
