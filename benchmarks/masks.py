"""Host time of structured outputs: which tokens of a large vocabulary the grammars of many sequences allow.

python benchmarks/masks.py [--sequences N] [--steps N]

The vocabulary has 128,256 tokens, made of pieces of the documentation and of random letters. Sequences follow a small
schema of JSON, and one of 11,000 lines, each by tokens that are drawn from what its grammar allows. It prints seconds
for the vocabulary and for compiling a schema, and milliseconds a token of masks and of states that take a token in. The
program that computes the logits, and the copy of masks to a device, are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import string
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIZE = 128_256
TEXT = {"type": ["string", "integer", "null"]}
PLACE = {"type": "object", "properties": {f"x{i}": TEXT for i in range(10)}, "additionalProperties": False}
SCHEMAS = {
    "small": {"type": "object", "properties": {"name": TEXT, "tags": {"type": "array", "items": TEXT}}},
    "large": {"type": "object", "properties": {f"place_{i}": PLACE for i in range(150)}},
}


class Tokenizer:
    """Pieces of a text, and every byte."""

    vocab_size, eos = SIZE, SIZE - 1

    def __init__(self, text: str):
        draw, pieces = random.Random(0), {bytes([byte]): None for byte in range(256)}
        while len(pieces) < SIZE - 1:
            length, start = draw.randint(2, 7), draw.randrange(len(text) - 7)
            made = "".join(draw.choices(string.ascii_lowercase, k=length))
            pieces[(made if draw.random() < 0.3 else text[start : start + length]).encode()] = None
        self.pieces = [*pieces]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def measure(grammars: Any, grammar: str, sequences: int, steps: int) -> float:
    """Returns the milliseconds of a token, of so many sequences in a step."""
    draw, times = random.Random(0), []
    matchers = [grammars.matcher(grammar) for _ in range(sequences)]
    allowed = np.full((sequences, -(-SIZE // 32)), -1, np.int32)
    for _ in range(steps):
        start = time.perf_counter()
        grammars.fill(allowed, [(row, matcher, []) for row, matcher in enumerate(matchers)])
        seconds = time.perf_counter() - start
        bits = np.unpackbits(allowed.view(np.uint8), axis=1, bitorder="little")
        for row, matcher in enumerate(matchers):
            token = int(draw.choice(np.flatnonzero(bits[row])))
            start = time.perf_counter()
            matcher.consume_token(token)
            seconds += time.perf_counter() - start
            if matcher.is_stopped():
                matchers[row] = grammars.matcher(grammar)
        times.append(1e3 * seconds / sequences)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    settings = parser.parse_args()
    sys.path.insert(0, str(ROOT / "generated"))
    structured, forms = (importlib.import_module(f"llama2_cpu.{name}") for name in ("structured", "answer_forms"))
    tokenizer = Tokenizer("".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))))
    structured.has_text = lambda tokenizer, token: token < len(tokenizer.pieces)
    structured.token_bytes = lambda tokenizer, token: tokenizer.pieces[token]
    start = time.perf_counter()
    grammars = structured.Grammars(tokenizer, {tokenizer.eos}, SIZE)
    print(f"vocabulary of {SIZE:,} tokens: {time.perf_counter() - start:.2f} s")
    for name, schema in SCHEMAS.items():
        grammar, start = f"start: {forms.json_rule(schema)}", time.perf_counter()
        grammars.matcher(grammar)
        seconds = time.perf_counter() - start
        each = measure(grammars, grammar, settings.sequences, settings.steps)
        lines = len(json.dumps(schema, indent=1).splitlines())
        print(f"{name} schema, {lines:,} lines: compiled in {seconds:.3f} s; {each:.3f} ms a token")


if __name__ == "__main__":
    main()
