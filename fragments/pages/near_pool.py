"""Which pages of layers that see the nearest tokens only are whose, from one token to the next.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (sharing, counts of references).
"""

from collections.abc import Callable, Hashable, Sequence

from generator.language import requires
from generator.language.roles import PagePool, page_digest

requires("sliding_window or chunked_attention")


class NearPages:
    """Pages of near layers: a text holds those that its next token sees, and those that a step writes to."""

    def __init__(self, pages: int, size: int, oldest_seen: Callable[[int], int]):
        """So many pages of `size` positions; `oldest_seen` of a position is the first that a token there sees."""
        self.pool, self.size, self.oldest_seen = PagePool(pages), size, oldest_seen
        self.held: dict[Hashable, dict[int, int]] = {}  # of each text: place among its pages -> page

    def move(self, text: Hashable, start: int, end: int) -> dict[int, int]:
        """The pages that a text has when its tokens from `start` to `end` - 1 are computed, by their places.

        Those that no token from `start` on sees are given back, and those that are written to are taken.
        """
        held = self.held.setdefault(text, {})
        self.give_back(held, range(self.oldest_seen(start) // self.size))
        for place in range(start // self.size, -(-end // self.size)):
            if place not in held:
                held[place] = self.pool.take()
        return held

    def give_back(self, held: dict[int, int], places: range) -> None:
        self.pool.give_back([held.pop(place) for place in sorted(held) if place in places])

    def shareable(self, root: bytes, digests: list[bytes], text: Sequence[int], pool: PagePool) -> int:
        """How many whole pages of a text can be shared: `pool` has all of them, and here are those that are seen then.

        Args:
            root: before the digest of its first page.
            digests: of its first pages, which it has already.
        """
        digests, found = digests.copy(), len(digests)
        while (end := (len(digests) + 1) * self.size) < len(text):  # a token at least has to be computed
            digest = page_digest(digests[-1] if digests else root, text[end - self.size : end])
            if digest not in pool.found:
                break
            digests.append(digest)
            if self.pool.found.keys() >= set(digests[self.oldest_seen(end) // self.size :]):
                found = len(digests)
        return found

    def share(self, text: Hashable, digests: list[bytes], start: int) -> None:
        """Gives a text those pages that are seen after all that `digests` name, in place of its own from `start` on."""
        if start == len(digests):
            return  # none is shared
        held, first = self.held.setdefault(text, {}), self.oldest_seen(len(digests) * self.size) // self.size
        self.give_back(held, range(first))
        self.give_back(held, range(start, len(digests)))
        for place in range(max(first, start), len(digests)):
            held[place] = self.pool.found[digests[place]]
            self.pool.share(digests[place])

    def name(self, text: Hashable, place: int, digest: bytes) -> None:
        """Says what a full page holds, if the text has it still."""
        if place in self.held[text]:
            self.pool.name(self.held[text][place], digest)

    def leave(self, text: Hashable) -> None:
        """Gives back all that a text has."""
        self.pool.give_back(list(self.held.pop(text, {}).values()))
