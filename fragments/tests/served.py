"""A served model for tests, and a client of its server."""

import contextlib
import http.client
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generator.language import requires
from generator.language.roles import PACKAGE, WIDE, save_hf, wide_model

requires("serve")

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


def save_served(folder: Path) -> None:
    """Makes a Hugging Face directory: random weights, a token for each byte, a chat template."""
    save_hf(WIDE, wide_model(), folder)
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@contextlib.contextmanager
def served(folder, *flags: str, program: tuple[str, ...] = ("-m", f"{PACKAGE.name}.serve")):
    """Starts a server; yields its process, its port, and the statuses of three paths while it compiles."""
    module("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *program, "--hf", folder, "--port", str(port), "--dtype", "float32"]
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


@contextlib.contextmanager
def long_answers(port: int):
    """Requests ten texts of maximum length; disconnects on exit."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        asked = {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": WIDE.context_length - 10, "n": 10}
        given = {"Content-Type": "application/json", "Authorization": "Bearer another"}
        connection.request("POST", "/v1/completions", json.dumps(asked), given)
        yield connection


def wait_for(port: int, requests: int) -> None:
    """Waits until the engine has so many requests."""
    deadline = time.monotonic() + 10
    while (found := number(port, "serve_running") + number(port, "serve_queued")) != requests:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
