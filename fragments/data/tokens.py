"""What the tokens of documents depend on, and special tokens in their texts."""

import collections
import re
import sys
from typing import Any

from generator.language import point
from generator.language.roles import AnyTokenizer, find_files


def identity(tokenizer: AnyTokenizer) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in ("digest", "vocab_size", "eos", "parses_special", "prefix")}


def fingerprint(data: str) -> list[Any]:
    """Returns names and sizes of the files of each source, which stay the same when it is moved."""
    with point("fingerprint.sources", data):
        sources = [[[file.name, file.stat().st_size] for file in find_files(data)]]
    return sources


def special_texts(tokenizer: AnyTokenizer) -> re.Pattern[str]:
    """Returns a pattern of the special tokens that stay text in documents."""
    names = () if tokenizer.parses_special or tokenizer.digest == "bytes" else tokenizer.special.values()
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def warn_of_special_tokens(data: str, which: str, special: collections.Counter[str]) -> None:
    """Warns of documents that hold the text of special tokens, which was likely meant as tokens."""
    if special:
        most = ", ".join(f"{name} in {count}" for name, count in special.most_common(3))
        problem = f"of {which} documents: {most}; there they are text: --special-tokens makes them tokens"
        print(f"warning: data {data}: special tokens in documents: {problem}", file=sys.stderr)
