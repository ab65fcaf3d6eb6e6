"""Words that are not used any more, as the field has others for what they meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SERVING = "engine", "engine_thread", "pages", "pages_kernel", "weights", "answers", "kernels", "model"
FOLDERS = {
    "everywhere": ("fragments", "templates", "targets", "docs", "README.md"),
    "English": ("fragments", "templates", "targets", "docs", "README.md", "generator", "benchmarks"),
    "serving": tuple(f"fragments/{name}" for name in SERVING),
}
WORDS = {
    "everywhere": {
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
        r"scaled are the|of whose gradient|as many \w+ wait as may|what is no \w+ gets|is worked for no more": "plain English",
    },
    "English": {r"\bbut for\b": "except"},
    "serving": {
        r"\btexts\b": "sequences",
        r"\btable_widths|\.tables\b": "block tables",
        r"\bholders\b": "reference count",
        r"\btake_in\b|pool\.take\(|\bleave\(": "allocate, collect, preempt",
        r"beginnings? that": "prefix",
        r"keys and values in pages": "KV cache",
    },
}


def files(folder: str) -> list[Path]:
    path = ROOT / folder
    return (
        [path] if path.is_file() else [it for it in path.rglob("*") if it.suffix in (".py", ".toml", ".jinja", ".md")]
    )


@pytest.mark.parametrize("where", WORDS)
def test_old_words_are_gone(where):
    paths = [path for folder in FOLDERS[where] for path in files(folder)]
    assert len(paths) > 40
    found = [
        f"{path.relative_to(ROOT)}:{number}: say {better!r}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word, better in WORDS[where].items()
        if re.search(word, line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
