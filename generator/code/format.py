"""Format woven Python with ruff, and keep the origin of every token.

A formatter changes little besides white space: it adds and removes commas, parentheses and semicolons, moves comments,
respells strings and numbers, and joins adjacent strings. So the names, operators and literals before and after are the
same sequence, and each takes its origin across; what ruff adds belongs to the token before it. Text that does not fit
is an error, no guess.

Tokens come from pytokens: the standard library's differ from one Python version to the next.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate, zip_longest
from typing import NamedTuple

from generator.code.memory import remembered
from generator.code.ruff import run_ruff
from generator.code.traced import Origin, Piece, Traced
from generator.errors import LoomError

PUNCTUATION = frozenset(",();")  # what ruff may add and remove
BLANK = frozenset({"whitespace", "indent", "dedent", "newline", "nl", "endmarker"})


class Token(NamedTuple):
    text: str
    start: int  # offset in the text


def format_python(sources: Sequence[Traced]) -> list[Traced]:
    """Formats texts with ruff; each token of a result has the origin of its token in the source.

    White space, and what ruff adds, has the origin of the token before it; indentation that of the token after it.
    Each line of a string has the origin of the string's same line.

    Args:
        sources: Python code, each text by itself. Ruff runs once for all of them.

    Returns:
        Exactly what ruff makes of each text: the source where ruff changes nothing, else inserted pieces, one for each
        run of one origin.
    """
    new = [source for source in dict.fromkeys(sources) if source not in _formatted]
    for source, text in zip(new, run_ruff(new), strict=True):
        _formatted[source] = _carry(source, text)
    return [_formatted[source] for source in sources]


_formatted: dict[Traced, Traced] = {}  # packages have most texts in common


def _carry(source: Traced, text: str) -> Traced:
    """The formatted text with the origins of the source."""
    if text == source.text:  # most are, as fragments are formatted
        return source
    pairs = _align(source, tokenize(source.text), tokenize(text))
    if not pairs:  # nothing but white space
        return Traced.insert(text, source.origin_at(0)) if text else Traced()
    return _trace(_by_line(source), text, pairs)


def tokenize(text: str) -> list[Token]:
    """The tokens of a text that ruff accepts, comments included, white space left out; an f-string is one token."""
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
        # Ruff joins the dots of `from . .. import x`, so they are always three.
        tokens += [Token(".", start + i) for i in range(3)] if word == "..." else [Token(word, start)]
    return tokens


def _align(source: Traced, old: list[Token], new: list[Token]) -> list[tuple[Token, Token]]:
    """Pairs each token of the formatted text with its token in the source, except what ruff added."""
    old_comments, old_words, old_marks = _sort(old)
    new_comments, new_words, new_marks = _sort(new)
    pairs = _pair_comments(source, old_comments, new_comments)
    for before, after in zip_longest(old_words, new_words, fillvalue=()):
        if _normal(before, after) != _normal(after, before):
            raise _unaligned(source, before, after)
        pairs += zip(before, after, strict=False)  # of strings that ruff joined, the first one
    for before, after in zip(old_marks, new_marks, strict=True):
        kept = _kept("".join(mark.text for mark in before), "".join(mark.text for mark in after))
        pairs += [(before[i], after[j]) for i, j in kept]
    return pairs


def _sort(tokens: list[Token]) -> tuple[list[Token], list[list[Token]], list[list[Token]]]:
    """The comments; the words (what ruff keeps, in order); and before each word and at the end, the punctuation.

    A word is one token, or several strings side by side, which ruff may join.
    """
    comments: list[Token] = []
    words: list[list[Token]] = []
    marks: list[list[Token]] = [[]]
    for token in tokens:
        if token.text[0] == "#":
            comments.append(token)
        elif token.text in PUNCTUATION:
            marks[-1].append(token)
        elif words and not marks[-1] and _is_string(token) and _is_string(words[-1][-1]):
            words[-1].append(token)
        else:
            words.append([token])
            marks.append([])
    return comments, words, marks


def _is_string(token: Token) -> bool:
    return token.text[-1] in "\"'"


@remembered
def _kept(old: str, new: str) -> tuple[tuple[int, int], ...]:
    """Which punctuation marks between two words stayed: pairs of an index in `old` and one in `new`."""
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return tuple((block.a + i, block.b + i) for block in blocks for i in range(block.size))


def _normal(word: Sequence[Token], other: Sequence[Token]) -> list[str]:
    """What ruff leaves alone in strings or a number, if they stand in for others."""
    texts = [token.text for token in word]
    if texts == [token.text for token in other]:
        return texts
    if word and _is_string(word[0]):
        parts = [text.partition(text[-1]) for text in texts]
        body = "".join(body for _, _, body in parts)
        body = re.sub(r"\\(x..|u.{4}|U.{8}|N\{[^}]*\})", lambda escape: escape[0].lower(), body)
        # quotes change, with their escapes; docstrings are indented anew; joined to an f-string, braces are doubled
        body = re.sub(r"""[\s\\"'{}]""" if len(word) != len(other) else r"""[\s\\"']""", "", body)
        return [*sorted({*"".join(prefix for prefix, _, _ in parts).lower()} - {"u"}), '"', body]
    return [repr(ast.literal_eval(text)) if re.match(r"\.?\d", text) else text for text in texts]


def _pair_comments(source: Traced, old: list[Token], new: list[Token]) -> list[tuple[Token, Token]]:
    """Pairs comments by what they say, since ruff moves them past other tokens."""
    waiting: dict[str, deque[Token]] = defaultdict(deque)
    pairs = []
    for comment in old:
        waiting["".join(comment.text.split())].append(comment)
    for rest in new:
        while rest.text:
            # Ruff may put several comments on one line, as in `# a  # b`: take the longest that is one in the source.
            parts = re.split(r"(?=  #)", rest.text)
            heads = ["".join(parts[:count]) for count in range(len(parts), 0, -1)]
            head = next((head for head in heads if waiting["".join(head.split())]), None)
            if head is None:
                raise _unaligned(source, (), [rest])
            pairs.append((waiting["".join(head.split())].popleft(), Token(head, rest.start)))
            rest = Token(rest.text[len(head) :], rest.start + len(head))
    for dropped in [comment for comments in waiting.values() for comment in comments]:
        raise _unaligned(source, [dropped], ())
    return pairs


def _unaligned(source: Traced, old: Sequence[Token], new: Sequence[Token]) -> LoomError:
    was, now = (" ".join(repr(token.text) for token in tokens) or "nothing" for tokens in (old, new))
    message = f"ruff turned {was} into {now}, a change that generator/code/format.py does not know"
    place = (*old, *new)[0]  # a token that ruff added stands in the source at about the same offset
    return LoomError(message, str(source.origin_at(place.start)), "Write it in the form that ruff gives.")


def _trace(source: Traced, text: str, pairs: list[tuple[Token, Token]]) -> Traced:
    """The formatted text, cut wherever a token has another origin than the token before it."""
    cuts: list[tuple[int, Origin]] = []
    for old, new in sorted(pairs, key=lambda pair: pair[1].start):
        old_starts = _line_starts(old)
        for row, start in enumerate(_line_starts(new)):
            # Ruff may put the closing quotes of a string on a line of their own, which the source does not have.
            origin = source.origin_at(old_starts[min(row, len(old_starts) - 1)])
            if not cuts or origin != cuts[-1][1]:
                line = text.rfind("\n", 0, start) + 1
                cuts.append((start if text[line:start].strip() else line, origin))
    starts = [0, *(start for start, _ in cuts[1:]), len(text)]
    return Traced.join(Traced.insert(text[starts[i] : starts[i + 1]], origin) for i, (_, origin) in enumerate(cuts))


def _line_starts(token: Token) -> list[int]:
    """Where the lines of a token start; only strings have several."""
    return list(accumulate((len(line) + 1 for line in token.text.split("\n")[:-1]), initial=token.start))


def _by_line(source: Traced) -> Traced:
    """The same text with a piece for each line; in a long piece, looking up an origin takes long."""
    pieces = []
    for piece in source.pieces:
        for row, line in enumerate(re.findall("[^\n]*\n|[^\n]+", piece.text)):
            origin = Origin(piece.origin.path, piece.origin.line + row) if piece.copied else piece.origin
            pieces.append(Piece(line, origin))
    return Traced(tuple(pieces))
