"""The tokens of documents."""

import collections
import re
import sys
from collections.abc import Sequence
from typing import Any

import grain

from generator.language import point
from generator.language.roles import (
    ByteTokenizer,
    FileTokenizer,
    encode_document,
    find_files,
    open_documents,
)


def identity(tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
    names = {name: getattr(tokenizer, name) for name in ("digest", "vocab_size", "eos", "parses_special")}
    return names | {"prefix": list(tokenizer.prefix)}


def special_texts(tokenizer: ByteTokenizer | FileTokenizer) -> re.Pattern[str]:
    """Returns a pattern of the special tokens that stay text in documents."""
    names = () if tokenizer.parses_special or tokenizer.digest == "bytes" else tokenizer.special.values()
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def count_special(tokenizer: ByteTokenizer | FileTokenizer, documents: Sequence[str]) -> collections.Counter[str]:
    """Counts, by special token, how many of the first 100 documents hold its text."""
    texts, names = (documents[i] for i in range(min(len(documents), 100))), special_texts(tokenizer)
    return collections.Counter(name for text in texts for name in set(names.findall(text)))


def warn_of_special_tokens(data: str, which: str, found: collections.Counter[str]) -> None:
    """Warns of documents that hold the text of special tokens, which was likely meant as tokens."""
    if found:
        most = ", ".join(f"{name} in {count}" for name, count in found.most_common(3))
        problem = f"of {which} documents: {most}; there they are text: --special-tokens makes them tokens"
        print(f"warning: data {data}: special tokens in documents: {problem}", file=sys.stderr)


def open_tokens(data: str, tokenizer: ByteTokenizer | FileTokenizer, field: str = "text") -> grain.MapDataset:
    """Returns the tokens of each document of a source, int32 [n], with the tokenizer's prefix and eos."""
    with point("open_tokens.documents", data, tokenizer, field):
        tokens = open_documents(data, field).map(lambda text: encode_document(tokenizer, text))
    return tokens


def fingerprint_source(path: str) -> Any:
    """Returns names and sizes of a source's files, which stay the same when it is moved."""
    with point("fingerprint_source.files", path):
        found = [[file.name, file.stat().st_size] for file in find_files(path)]
    return found


def fingerprint(data: str) -> list[Any]:
    """Returns the fingerprints of all sources of the data."""
    with point("fingerprint.sources", data):
        sources = [fingerprint_source(data)]
    return sources
