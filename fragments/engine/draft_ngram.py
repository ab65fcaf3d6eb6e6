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
    sequence, size = request.sequence, NGRAM
    for end in range(request.indexed, len(sequence)):  # tokens since the last call
        request.ngrams[tuple(sequence[max(end - size, 0) : end])] = end
    request.indexed = len(sequence)
    place = request.ngrams.get(tuple(sequence[-size:]))
    for drafted in range(0 if place is None else most):
        sequence.append(sequence[place + drafted])  # may be a draft token itself, where the sequence repeats
    return sequence[request.indexed :]


@splice("Engine.draft")
def _(request, most):
    request.drafts = draft_ngram(request, most)
