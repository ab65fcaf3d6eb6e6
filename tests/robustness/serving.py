"""A server of llama2_cpu for hostile clients: random weights, a token for each byte, special tokens, a chat template."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from whole import whole_packages

from robustness.programs import PACKAGE, module

SPECIAL = ["<s>", "</s>", *(f"<|reserved_special_token_{i}|>" for i in range(254))]
TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message.role + '\n' + (message.content or '') | trim + '</s>\n' }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<s>assistant\n"
)
CLIENT_SECONDS = 2


def save_model(folder: Path) -> None:
    sizes = dict(width=16, layers=2, heads=2, kv_heads=1, head_size=8, mlp_width=16, vocab_size=512)
    config = dataclasses.replace(module("config").PRESETS["tiny"], context_length=4096, dtype="float32", **sizes)
    made = jax.jit(lambda: module("model").Decoder(config, nnx.Rngs(0)))()
    module("huggingface").save_hf(config, made, folder)
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@contextlib.contextmanager
def served(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port; what it logs goes to the file `log` of the folder."""
    command = [sys.executable, "-m", f"{PACKAGE}.serve", "--hf", str(folder), "--port", "0", "--dtype", "float32"]
    command += ["--client-seconds", str(CLIENT_SECONDS), "--max-rows", "4", "--chunk", "64", *flags]
    place = {"cwd": whole_packages(), "env": os.environ | {"JAX_PLATFORMS": "cpu"}}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, **place) as process,
    ):
        try:
            yield process, int(next(line for line in process.stdout or () if " at http://" in line).rpartition(":")[2])
        finally:
            process.kill()


def request(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def answer(port: int, sent: bytes, gone: bool = False) -> bytes:
    """All that comes until the server closes, or has answered; nothing where it closes at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        got = b""
        with contextlib.suppress(ConnectionError):  # closed before all of it was sent: what came is read all the same
            connection.sendall(sent)
        if gone:
            return got
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                got += part
                head, _, body = got.partition(b"\r\n\r\n")
                length = next((x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), None)
                if length and len(body) >= int(length.partition(b":")[2]):
                    break
        return got
