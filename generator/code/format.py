"""Format woven Python with black, and keep the origin of every token.

Black changes little besides white space: it adds and removes commas, parentheses and semicolons, moves comments, and
respells strings and numbers. So the names, operators and literals before and after are the same sequence, and each
takes its origin across; what black adds belongs to the token before it. Text that does not fit is an error, no guess.

Tokens come from pytokens, which black uses itself: the standard library's differ from one Python version to the next.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from difflib import SequenceMatcher
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from generator.code.memory import remembered
from generator.code.traced import Origin, Piece, Traced
from generator.errors import LoomError

if TYPE_CHECKING:
    import black

LINE_LENGTH = 120
PUNCTUATION = frozenset(",();")  # what black may add and remove
BLANK = frozenset({"whitespace", "indent", "dedent", "newline", "nl", "endmarker"})


class Token(NamedTuple):
    text: str
    start: int  # offset in the text


@remembered
def format_python(source: Traced) -> Traced:
    """Formats a text with black; each token of the result has the origin of its token in the source.

    White space, and what black adds, has the origin of the token before it; indentation that of the token after it.
    Each line of a string has the origin of the string's same line.

    Args:
        source: Python code.

    Returns:
        Exactly what black makes of the text: the source where black changes nothing, else inserted pieces, one for
        each run of one origin.
    """
    text = _black(source)
    if text == source.text:  # most are, as fragments are formatted
        return source
    pairs = _align(source, tokenize(source.text), tokenize(text))
    if not pairs:  # nothing but white space
        return Traced.insert(text, source.origin_at(0)) if text else Traced()
    return _trace(_by_line(source), text, pairs)


def _black(source: Traced) -> str:
    import black  # takes 0.1 s to import, which a command that formats nothing should not wait for

    try:
        return black.format_str(source.text, mode=_mode())
    except SyntaxError as error:  # an encoding declaration that names no encoding
        raise LoomError(str(error), str(source.origin_at(0)), "Leave out the encoding declaration.") from error
    except black.InvalidInput as error:
        reason = (error.details or "no reason given").strip().splitlines()[-1]
        if (error.context or "").startswith("INTERNAL ERROR"):  # the line that it names is one of black's output
            raise LoomError(f"black made invalid code of it: {reason}", source.origin_at(0).path) from error
        # Black counts from the first character that is not blank, and finds an unexpected end after the last line.
        blank = len(source.text) - len(source.text.lstrip())
        lines = source.text.strip().split("\n")
        row = min(error.lineno or 1, len(lines)) - 1
        offset = blank + sum(len(line) + 1 for line in lines[:row]) + min(error.column or 0, len(lines[row]))
        message = f"black cannot parse {lines[row].strip()!r} ({reason})"
        raise LoomError(message, str(source.origin_at(offset)), "Fix this line, or what is woven into it.") from error


@remembered
def _mode() -> black.Mode:
    """One for all texts: black remembers by it, and takes long to compare it with another one."""
    import black

    return black.Mode(line_length=LINE_LENGTH, target_versions={black.TargetVersion.PY311})


def tokenize(text: str) -> list[Token]:
    """The tokens of a text that black accepts, comments included, white space left out; an f-string is one token."""
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
        # Black joins the dots of `from . .. import x`, so they are always three.
        tokens += [Token(".", start + i) for i in range(3)] if word == "..." else [Token(word, start)]
    return tokens


def _align(source: Traced, old: list[Token], new: list[Token]) -> list[tuple[Token, Token]]:
    """Pairs each token of the formatted text with its token in the source, but for what black added."""
    old_comments, old_words, old_marks = _sort(old)
    new_comments, new_words, new_marks = _sort(new)
    pairs = _pair_comments(source, old_comments, new_comments)
    for before, after in zip_longest(old_words, new_words):
        if before is None or after is None or _normal(before.text, after.text) != _normal(after.text, before.text):
            raise _unaligned(source, before, after)
        pairs.append((before, after))
    for before, after in zip(old_marks, new_marks, strict=True):
        kept = _kept("".join(mark.text for mark in before), "".join(mark.text for mark in after))
        pairs += [(before[i], after[j]) for i, j in kept]
    return pairs


def _sort(tokens: list[Token]) -> tuple[list[Token], list[Token], list[list[Token]]]:
    """The comments; the words (what black keeps, in order); and before each word and at the end, the punctuation."""
    comments, words = [], []
    marks: list[list[Token]] = [[]]
    for token in tokens:
        if token.text[0] == "#":
            comments.append(token)
        elif token.text in PUNCTUATION:
            marks[-1].append(token)
        else:
            words.append(token)
            marks.append([])
    return comments, words, marks


@remembered
def _kept(old: str, new: str) -> tuple[tuple[int, int], ...]:
    """Which punctuation marks between two words stayed: pairs of an index in `old` and one in `new`."""
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return tuple((block.a + i, block.b + i) for block in blocks for i in range(block.size))


def _normal(word: str, other: str) -> str:
    """What black leaves alone in a string or a number, if it stands in for another one."""
    if word == other:
        return word
    if word[-1] in ("'", '"'):
        prefix, _, body = word.partition(word[-1])
        body = re.sub(r"\\(x..|u.{4}|U.{8}|N\{[^}]*\})", lambda escape: escape[0].lower(), body)
        body = re.sub(r"""[\s\\"']""", "", body)  # quotes change, with their escapes; docstrings are indented anew
        return "".join(sorted(prefix.lower().replace("u", ""))) + '"' + body
    return repr(ast.literal_eval(word)) if re.match(r"\.?\d", word) else word


def _pair_comments(source: Traced, old: list[Token], new: list[Token]) -> list[tuple[Token, Token]]:
    """Pairs comments by what they say, since black moves them past other tokens."""
    waiting: dict[str, deque[Token]] = defaultdict(deque)
    pairs = []
    for comment in old:
        waiting["".join(comment.text.split())].append(comment)
    for rest in new:
        while rest.text:
            # Black may put several comments on one line, as in `# a  # b`: take the longest that is one in the source.
            parts = re.split(r"(?=  #)", rest.text)
            heads = ["".join(parts[:count]) for count in range(len(parts), 0, -1)]
            head = next((head for head in heads if waiting["".join(head.split())]), None)
            if head is None:
                raise _unaligned(source, None, rest)
            pairs.append((waiting["".join(head.split())].popleft(), Token(head, rest.start)))
            rest = Token(rest.text[len(head) :], rest.start + len(head))
    for dropped in [comment for comments in waiting.values() for comment in comments]:
        raise _unaligned(source, dropped, None)
    return pairs


def _unaligned(source: Traced, old: Token | None, new: Token | None) -> LoomError:
    was, now = (repr(token.text) if token else "nothing" for token in (old, new))
    message = f"black turned {was} into {now}, a change that generator/code/format.py does not know"
    place = old or new or Token("", 0)  # a token that black added stands in the source at about the same offset
    return LoomError(message, str(source.origin_at(place.start)), "Write it in the form that black gives.")


def _trace(source: Traced, text: str, pairs: list[tuple[Token, Token]]) -> Traced:
    """The formatted text, cut wherever a token has another origin than the token before it."""
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
