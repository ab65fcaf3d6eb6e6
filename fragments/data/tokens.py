"""What the tokens of documents depend on."""

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
