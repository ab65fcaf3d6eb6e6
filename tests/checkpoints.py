"""Small checkpoints of chat models, the programs that run on them, and an answer of their server."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from families.cases import FAMILIES

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
FAST = "--xla_backend_optimization_level=0"  # to compile, as arrays are tiny
ENVIRONMENT = os.environ | {"PATH": PATH, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FAST}
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_checkpoint(folder: Path, family: str, **others: object) -> Path:
    """A checkpoint of a family, in small sizes but for other settings, with a tokenizer and a template of its own."""
    import torch  # late, as both take seconds, and few tests make one
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    made = FAMILIES[family]
    settings = (
        made.settings | next(iter(made.cases.values())).settings | {"vocab_size": 300, "eos_token_id": 0} | others
    )
    torch.manual_seed(0)
    model = getattr(transformers, made.model)(getattr(transformers, made.config)(**settings))
    model.save_pretrained(folder)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["1 + 1? user assistant"], special_tokens=["</s>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def run(command: str, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a line for a shell, and holds its exit code to be `code`."""
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@contextmanager
def serving(command: str, folder: Path) -> Iterator[str]:
    """Starts a server, on a free port instead of 8000; yields the port when it has compiled."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(shlex.split(command.replace("8000", port)), cwd=folder, env=ENVIRONMENT)
    try:
        for _ in range(600):
            assert server.poll() is None
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=60)
                break
            except OSError:  # it does not listen yet, or it compiles
                time.sleep(0.5)
        yield port
    finally:
        server.kill()
        server.wait()


def ask(port: str) -> str:
    """Returns who answers a chat, of a server."""
    body = json.dumps({"messages": [{"role": "user", "content": "1 + 1?"}], "max_tokens": 4}).encode()
    url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"Content-Type": "application/json"}
    answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60))
    return answer["choices"][0]["message"]["role"]
