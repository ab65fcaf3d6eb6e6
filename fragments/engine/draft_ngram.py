"""Draft tokens by prompt lookup: what followed the last n-gram the last time it occurred in the sequence.

Source: Saxena 2023, "Prompt lookup decoding"; Leviathan et al. 2023, arXiv 2211.17192 (speculative decoding).
"""

import dataclasses

from generator.language import requires, splice
from generator.language.roles import Request

requires("speculation")

NGRAM = 3  # last tokens that must have occurred before


@splice("Request.fields")
def _():
    ngrams: dict[tuple[int, ...], int] = dataclasses.field(default_factory=dict)  # n-gram -> where its last one ends
    indexed: int = 1  # tokens of the sequence that are in `ngrams`


def draft_ngram(request: Request, most: int) -> list[int]:
    """Returns `most` draft tokens, or none where the last n-gram is new."""
    length = len(request.prompt) + len(request.tokens)
    for end in range(request.indexed, length):  # tokens since the last call
        request.ngrams[tuple(request.span(max(end - NGRAM, 0), end))] = end
    request.indexed = length
    place = request.ngrams.get(tuple(request.span(max(length - NGRAM, 0), length)), length)
    drafts = request.span(place, min(place + most, length))
    while drafts and len(drafts) < most:
        drafts.append(drafts[place - length])  # of its own, where the sequence repeats
    return drafts


@splice("Engine.draft")
def _(request, most):
    request.drafts = draft_ngram(request, most)
