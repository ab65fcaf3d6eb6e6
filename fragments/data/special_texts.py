"""A warning of documents that hold the text of special tokens."""

import collections
import re
import sys

from generator.language import splice
from generator.language.roles import AnyTokenizer


def special_texts(tokenizer: AnyTokenizer) -> re.Pattern[str]:
    """Returns a pattern of the special tokens that stay text in documents."""
    names = () if tokenizer.parses_special or tokenizer.digest == "bytes" else tokenizer.special.values()
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def warn_of_special_tokens(data: str, which: str, special: collections.Counter[str]) -> None:
    """Warns of documents that hold the text of special tokens, which was likely meant as tokens."""
    if special:
        most = ", ".join(f"{name} in {count}" for name, count in special.most_common(3))
        print(
            f"warning: data {data}: special tokens in documents: "
            f"of {which} documents: {most}; there they are text: --special-tokens makes them tokens",
            file=sys.stderr,
        )


@splice("open_pieces.source")
def _(texts, tokenizer, path, split):
    if split == "train":
        names = special_texts(tokenizer)
        special = collections.Counter(name for text in texts[:100] for name in set(names.findall(text)))
        warn_of_special_tokens(path, "the first 100", special)


@splice("test_tokenizers.read", optional=True)
def _(is_silent, capsys):
    warning = "special tokens in documents: of the first 100 documents: </s> in 2; there they are text"
    assert (warning in capsys.readouterr().err) != is_silent
