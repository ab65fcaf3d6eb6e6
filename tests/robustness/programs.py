"""The programs of llama2_cpu in this process, and how a run of one may end."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import itertools
import json
import math
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from whole import whole_packages

sys.path.insert(0, str(whole_packages()))
PACKAGE = "llama2_cpu"
TINY = (
    "--preset tiny --width 16 --layers 2 --heads 2 --kv-heads 1 --head-size 8 --mlp-width 16 --context-length 32 "
    "--sequence-length 16 --batch-size 2 --steps 1 --eval-batches 1 --dtype float32 --mesh-fsdp 1"
).split()
TEXTS = [f"document {i}: größer als 日本 {'x' * (i % 7)}" for i in range(60)]

# every case, or as many of each group, drawn by a fixed seed
ALL = bool(os.environ.get("ALL_BAD_INPUT"))
DRAWN = 12


def drawn(cases: list) -> list:
    return cases if ALL or len(cases) <= DRAWN else random.Random(0).sample(cases, DRAWN)


def module(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


@dataclasses.dataclass(frozen=True)
class Ending:
    code: int
    out: str
    err: str

    @property
    def refused(self) -> bool:
        """With a message, by one of the codes for it; a run that leaves in another way raises in `ending`."""
        if self.code == 0:
            return False
        assert self.code in (2, 74), (self.code, self.err)
        assert "Traceback" not in self.err and "Traceback" not in self.out, self.err
        assert self.err.strip(), "ended without a message"
        return True


def ending(program: Callable[[], Any]) -> Ending:
    """Runs a program; whatever it raises but SystemExit goes through, as it would be a traceback."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            program()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Ending(code, out.getvalue(), err.getvalue())


def train(*flags: str) -> Ending:
    with mock.patch("sys.argv", ["train", *TINY, *flags]):
        return ending(module("train").main)


def generate(directory: str | Path, *flags: str) -> Ending:
    arguments = ["--checkpoint-dir", str(directory), "--prompt", "document", "--max-tokens", "2", *flags]
    with mock.patch("sys.argv", ["generate", *arguments]):
        return ending(module("generate").main)


def read_data(data: str, tokenizer: str = "bytes") -> Ending:
    """All that a run would read, without its model: held-out batches, and of training as many as hold an epoch."""
    config = dataclasses.replace(
        module("config").PRESETS["tiny"], data=data, tokenizer=tokenizer, sequence_length=64, batch_size=2
    )

    @module("errors").ending_with_messages()
    def program() -> None:
        module("data").open_documents.cache_clear()
        held_out = module("tests.texts").read_sequences(config, "eval")
        training = module("tests.texts").read_sequences(config, "train")
        sequences = [*held_out, *itertools.islice(training, 120)]
        assert all(sequence["tokens"].max() < config.vocab_size for sequence in sequences)
        print(len(sequences))

    return ending(program)


def assert_trained(directory: Path, step: int = 1) -> None:
    """The run did what was asked: each step has a finite loss, and the last one is saved."""
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    losses = {record["step"]: record["train/loss"] for record in records if "train/loss" in record}
    assert set(losses) == set(range(1, step + 1)) and all(map(math.isfinite, losses.values()))
    assert (directory / str(step)).is_dir()


def jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def damaged(content: bytes, seed: int) -> dict[str, bytes]:
    """Ways in which a file goes bad."""
    draw = random.Random(seed)
    cuts = {f"cut to {part}": content[: int(len(content) * part)] for part in (0.01, 0.25, 0.5, 0.75, 0.97)}
    cuts["without its last byte"] = content[:-1]
    flipped = {}
    for i in range(6):
        copy = bytearray(content)
        copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
        flipped[f"bit {i} flipped"] = bytes(copy)
    other = {
        "empty": b"",
        "garbage": draw.randbytes(300),
        "zeros": bytes(len(content)),
        "zeros in the middle": content[: len(content) // 3] + bytes(9) + content[len(content) // 3 + 9 :],
        "blank": b" \n\t\n" * 20,
        "twice": content * 2,
    }
    return cuts | flipped | other


def replace(path: Path, content: bytes | None) -> None:
    """Another content; None: a folder in place of the file."""
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("good") / "good.jsonl")
