"""Words that are not used any more, as the field has others for what they meant."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("fragments", "templates", "targets", "docs", "README.md")
SERVING = ("engine", "engine_thread", "pages", "pages_kernel", "weights", "answers", "kernels", "model")
WORDS = [
    (
        SOURCES,
        {
            r"layers? ahead|layers_ahead|(?<!-)\bahead\b(?!-)": "MTP layers",
            r"one_later": "shift_left",
            r"\bguess(es|ed|ing)?\b|guess_ahead": "draft tokens",
            r"max[-_]rows": "max_sequences",
            r"held[-_]logits": "logits_per_chunk",
            r"keys_at_a_time": "kv_block_tokens",
            r"(?<!kv[-_])cache[-_]tokens": "kv_cache_tokens",
            r"part_shares": "prefill_chunks",
            r"rows_of_steps": "decode_batch_sizes",
            r"int8[-_]pages": "int8_kv_cache",
            r"near[-_ ](pages|layers|pool)": "sliding-window pages",
            r"nearest tokens only": "sliding-window or chunked attention",
            r"under[-_]way": "in flight",
            r"nobodys": "scratch slot",
            r"give_back|given? back|gives back": "free",
            r"(?-i:\bLater\()|save_later": "LazyArray",
            r"\btogether\(": "on_all_processes",
            r"\bbeside\(": "atomic_directory",
            r"tell_apart": "classify_error",
            r"in_words_of|not there in imported|, as bf16 would|asked for again, and then|where they do not tell": "English",
            r"scaled are the|of whose gradient|as many \w+ wait as may|what is no \w+ gets|is worked for no more": "English",
        },
    ),
    ((*SOURCES, "generator", "benchmarks"), {r"\bbut for\b": "except"}),
    (
        tuple(f"fragments/{name}" for name in SERVING),
        {
            r"\btexts\b": "sequences",
            r"\btable_widths|\.tables\b": "block tables",
            r"\bholders\b": "reference count",
            r"\btake_in\b|pool\.take\(|\bleave\(": "allocate, collect, preempt",
            r"beginnings? that": "prefix",
            r"keys and values in pages": "KV cache",
        },
    ),
]
# of variables, parameters, attributes and functions; in the tests of packages a name may be as short
NAMELESS = set("found told news asked wanted given held own laid_over whole some tell nothing".split())


@pytest.mark.parametrize(("places", "words"), WORDS)
def test_old_words_are_gone(places, words):
    found = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*")]]
    paths = [path for path in found if path.suffix in (".py", ".toml", ".jinja", ".md")]
    assert len(paths) > 40
    said = [
        f"{path.relative_to(ROOT)}:{number}: say {better!r}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word, better in words.items()
        if re.search(word, line, re.IGNORECASE)
    ]
    assert not said, "\n".join(said)


def bound_name(node: ast.AST) -> str:
    """Returns the name of a variable, parameter, attribute or function where it is bound; else ""."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
    return ""


def test_names_say_what_they_hold():
    paths = [path for path in (ROOT / "fragments").rglob("*.py") if path.parent.name != "tests"]
    assert len(paths) > 200
    nodes = ((path, node) for path in paths for node in ast.walk(ast.parse(path.read_text())))
    bound = [f"{path.relative_to(ROOT)}:{node.lineno}" for path, node in nodes if bound_name(node) in NAMELESS]
    assert not bound, "\n".join(bound)
