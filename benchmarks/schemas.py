"""Structured outputs of some 200 JSON schemas, of three models with random weights: is every answer valid?

python benchmarks/schemas.py [--tokens N]

The packages are built into build/schemas. Of each model the script prints how many answers jsonschema finds valid, how
many were cut at --tokens, and which schemas are refused, with the reason. Exit code 1 if an answer that ended is not
valid.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
from json_schemas import SCHEMAS

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "schemas"
VALIDATOR = jsonschema.Draft202012Validator
ARCHITECTURES = "llama2", "qwen3_moe", "lfm2"
# random weights seldom end what they have begun
ENDS = {ord(letter): 3.0 for letter in '"}],'}


def build() -> None:
    for architecture in ARCHITECTURES:
        command = [sys.executable, "-m", "generator", "build", architecture, "--target=cpu", "--with", "structured"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([*command, "--out", str(BUILT)], cwd=ROOT, env=environment, check=True, capture_output=True)
    sys.path.insert(0, str(BUILT))


def answers(architecture: str, tokens: int) -> collections.Counter[str]:
    """Prints what is refused or not valid, and returns the number of answers of each kind."""
    package = f"{architecture}_cpu"
    engines = importlib.import_module(f"{package}.tests.engines")
    names = "engine", "answer_forms", "settings", "structured", "request"
    engine_module, forms, settings, grammars, request_module = (
        importlib.import_module(f"{package}.{name}") for name in names
    )
    tokenizer = importlib.import_module(f"{package}.tokenizer").ByteTokenizer()
    sizes = settings.EngineSettings(max_sequences=16, page_size=16)
    engine = engine_module.Engine(engines.WIDE, engines.wide_model(), {tokenizer.eos}, sizes)
    engine.grammars = grammars.Grammars(tokenizer, engine.ends, engines.WIDE.vocab_size)
    counts, requests = collections.Counter[str](), []
    for keyword, schema in ((keyword, schema) for keyword, schemas in SCHEMAS.items() for schema in schemas):
        options = {"max_tokens": tokens, "temperature": 1.0, "seed": len(requests), "logit_bias": ENDS}
        sampling = settings.SamplingParams(grammar=f"start: {forms.json_rule(schema)}", **options)
        shown = f"{architecture}, {keyword}: {json.dumps(schema)[:100]}"
        try:
            requests.append((shown, schema, engine.add([5], sampling)))
        except request_module.RequestError as error:
            counts["refused"] += 1
            print(f"refused: {shown}: {str(error).splitlines()[0][:160]}")
    while engine.running or engine.queued:
        engine.step()
    for shown, schema, request in requests:
        text = tokenizer.decode(request.tokens)
        if request.finish != "stop":
            counts[request.finish] += 1
            print(f"{request.finish}: {shown}: {text[:60]!r}")
            continue
        try:
            jsonschema.validate(json.loads(text), schema, VALIDATOR, format_checker=VALIDATOR.FORMAT_CHECKER)
            counts["valid"] += 1
        except (ValueError, jsonschema.ValidationError) as error:
            counts["not valid"] += 1
            print(f"NOT VALID: {shown}: {text[:80]!r}: {str(error).splitlines()[0]}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=400, help="most tokens of an answer")
    settings = parser.parse_args()
    build()
    counts = {architecture: answers(architecture, settings.tokens) for architecture in ARCHITECTURES}
    print(f"{sum(map(len, SCHEMAS.values()))} schemas")
    for architecture, count in counts.items():
        print(f"{architecture}: " + ", ".join(f"{number} {kind}" for kind, number in count.most_common()))
    sys.exit(any(count["not valid"] for count in counts.values()))


if __name__ == "__main__":
    main()
