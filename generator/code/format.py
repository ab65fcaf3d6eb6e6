"""Formats woven Python with black, and keeps the origin of every token.

A formatter changes little besides white space: it adds and removes commas and parentheses, respells strings and
numbers, moves comments. So the two texts are aligned token by token, as diff aligns lines, and each token that both
have takes its origin across; what only the result has belongs to the token before it.

Tokens come from pytokens: the standard library's differ from one Python version to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from generator.code.black import run_black
from generator.code.traced import Origin, Traced

PUNCTUATION = frozenset(",()")  # what black adds
EMPTY: Mapping[str, str] = MappingProxyType({})
BLANK = frozenset({"whitespace", "indent", "dedent", "newline", "nl", "endmarker"})


class Token(NamedTuple):
    """A token of Python."""

    text: str
    start: int  # offset in the text


def format_python(sources: Sequence[Traced], formatted: Mapping[str, str] = EMPTY) -> list[Traced]:
    """Formats texts with black; each token of a result has the origin of its token in the source.

    White space, and what black adds, has the origin of the token before it; indentation that of the token after it.
    Each line of a string has the origin of the string's same line.

    Args:
        sources: Python code, each text by itself.
        formatted: path -> text of files in black's form: whole definitions of theirs are left as they are.

    Returns:
        The texts as black formats them. Where black changes nothing it is the source itself, else inserted pieces, one
        for each run of one origin.
    """
    new = [source for source in dict.fromkeys(sources) if source not in _formatted and not _is_copy(source, formatted)]
    for source, text in zip(new, run_black(new), strict=True):
        _formatted[source] = _carry_origins(source, text)
    return [_formatted.get(source, source) for source in sources]


_formatted: dict[Traced, Traced] = {}  # packages have most texts in common


def _is_copy(source: Traced, formatted: Mapping[str, str]) -> bool:
    """Returns whether a text is a part of a file in black's form, as the weaver has not changed it."""
    return len(source.pieces) == 1 and source.text in formatted.get(source.pieces[0].origin.path, "")


def _carry_origins(source: Traced, text: str) -> Traced:
    """Returns the formatted text with the origins of the source."""
    if text == source.text:  # most are, as fragments are formatted
        return source
    old, new = tokenize(source.text), tokenize(text)
    pairs = [
        pair
        for is_comment in (False, True)
        for pair in _align(
            *([token for token in tokens if token.text.startswith("#") == is_comment] for tokens in (old, new))
        )
    ]  # black moves comments, and nothing else
    if not pairs:  # nothing but white space
        return Traced.insert(text, source.origin_at(0)) if text else Traced()
    return _cut_by_origin(source, text, pairs)


def _align(old: list[Token], new: list[Token]) -> Iterator[tuple[Token, Token]]:
    """Yields each new token that is an old one, perhaps respelled, with that one."""
    matcher = SequenceMatcher(None, [*map(_spelling, old)], [*map(_spelling, new)], autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        for i, token in enumerate(new[first:last] if start < end else ()):
            if tag == "equal" or token.text not in PUNCTUATION:
                yield old[min(start + i, end - 1)], token


def tokenize(text: str) -> list[Token]:
    """Returns the tokens and comments of a text that black accepts; an f-string is one token."""
    import pytokens  # takes 30 ms to import

    tokens, depth, start = [], 0, 0
    for token in pytokens.tokenize(text):
        kind = token.type._name_  # what .name gives, which is slow on Python 3.11
        if depth == 0:
            start = token.start_index
        depth += (kind in ("fstring_start", "tstring_start")) - (kind in ("fstring_end", "tstring_end"))
        if depth > 0 or kind in BLANK:
            continue
        word = text[start : token.end_index]
        # black joins the dots of `from . .. import x`, so they are always three
        tokens += [Token(".", start + i) for i in range(3)] if word == "..." else [Token(word, start)]
    return tokens


def _spelling(token: Token) -> str:
    """Returns the part of a token that black never changes: not quotes, escapes, indentation in strings, or case."""
    return re.sub(r"""[\s\\"']""", "", token.text).lower() + token.text[-1:].replace("'", '"')


def _cut_by_origin(source: Traced, text: str, pairs: list[tuple[Token, Token]]) -> Traced:
    """Returns the formatted text, cut wherever a token has another origin than the token before it."""
    cuts: list[tuple[int, Origin]] = []
    for old, new in sorted(pairs, key=lambda pair: pair[1].start):
        old_starts = _line_starts(old)
        for row, start in enumerate(_line_starts(new)):
            # Black may put the closing quotes of a string on a line of their own, which the source does not have.
            origin = source.origin_at(old_starts[min(row, len(old_starts) - 1)])
            if not cuts or origin != cuts[-1][1]:
                line = text.rfind("\n", 0, start) + 1
                cuts.append((start if text[line:start].strip() else line, origin))
    starts = [0, *(start for start, _ in cuts[1:]), len(text)]
    return Traced.join(Traced.insert(text[starts[i] : starts[i + 1]], origin) for i, (_, origin) in enumerate(cuts))


def _line_starts(token: Token) -> list[int]:
    """Returns the offsets at which the lines of a token start; only strings have more than one."""
    return list(accumulate((len(line) + 1 for line in token.text.split("\n")[:-1]), initial=token.start))
