"""Guesses of what follows in a text: what followed the last time that it had the same tokens.

Source: Saxena 2023, "Prompt lookup decoding"; Leviathan et al. 2023, arXiv 2211.17192 (a step that checks guesses).
"""

from generator.language.roles import Request

GUESSED_FROM = 3  # as many last tokens have to be found again


def guess(request: Request, most: int) -> list[int]:
    """So many tokens; none, where the last ones were never there before."""
    text, size = request.text, GUESSED_FROM
    for end in range(request.searched, len(text)):  # of what came since the last time
        request.seen[tuple(text[max(end - size, 0) : end])] = end
    request.searched = len(text)
    place = request.seen.get(tuple(text[-size:]))
    for guessed in range(0 if place is None else most):
        text.append(text[place + guessed])  # where the text goes in circles, of what was guessed as well
    return text[request.searched :]
