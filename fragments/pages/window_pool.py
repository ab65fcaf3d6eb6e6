"""Allocation of pages to sequences in layers with sliding-window or chunked attention.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (sharing, reference counts).
"""

from collections.abc import Callable, Hashable, Sequence

from generator.language import requires
from generator.language.roles import PagePool, page_digest

requires("sliding_window or chunked_attention")


class WindowPages:
    """Pages of layers with a window: a sequence has those that its next token sees, and those that a step writes."""

    def __init__(self, pages: int, size: int, window_start: Callable[[int], int]):
        """Creates a pool of pages of `size` positions; `window_start` maps a position to the first that it sees."""
        self.pool = PagePool(pages)
        self.size, self.window_start = size, window_start
        self.block_tables: dict[Hashable, dict[int, int]] = {}  # sequence -> index of a page in it -> page

    def move(self, sequence: Hashable, start: int, end: int) -> dict[int, int]:
        """Returns the pages of a sequence, by index, for a step that computes its tokens from `start` to `end` - 1.

        Frees those that no token from `start` on sees, and allocates those that the step writes.
        """
        block_table = self.block_tables.setdefault(sequence, {})
        self.free(block_table, range(self.window_start(start) // self.size))
        for place in range(start // self.size, -(-end // self.size)):
            if place not in block_table:
                block_table[place] = self.pool.allocate()
        return block_table

    def free(self, block_table: dict[int, int], places: range) -> None:
        self.pool.free([block_table.pop(place) for place in sorted(block_table) if place in places])

    def shareable(self, root: bytes, digests: list[bytes], sequence: Sequence[int], pool: PagePool) -> int:
        """Returns how many leading pages a sequence can share: all are in `pool`, and the visible ones here too.

        Args:
            root: chained before the digest of its first page.
            digests: of the leading pages it has already.
        """
        shared = len(digests)
        digests = digests.copy()
        while (end := (len(digests) + 1) * self.size) < len(sequence):  # at least one token has to be computed
            digest = page_digest(digests[-1] if digests else root, sequence[end - self.size : end])
            if digest not in pool.page_of:
                break
            digests.append(digest)
            if self.pool.page_of.keys() >= set(digests[self.window_start(end) // self.size :]):
                shared = len(digests)
        return shared

    def share(self, sequence: Hashable, digests: list[bytes], start: int) -> None:
        """Gives a sequence the pages visible after all of `digests`, replacing its own from page `start` on."""
        if start == len(digests):
            return  # none is shared
        block_table = self.block_tables.setdefault(sequence, {})
        first = self.window_start(len(digests) * self.size) // self.size
        self.free(block_table, range(first))
        self.free(block_table, range(start, len(digests)))
        for place in range(max(first, start), len(digests)):
            block_table[place] = self.pool.page_of[digests[place]]
            self.pool.share(digests[place])

    def register(self, sequence: Hashable, place: int, digest: bytes) -> None:
        """Makes a full page findable by its digest, if the sequence still has it."""
        if place in self.block_tables[sequence]:
            self.pool.register(self.block_tables[sequence][place], digest)

    def release(self, sequence: Hashable) -> None:
        """Frees all pages of a sequence."""
        self.pool.free(list(self.block_tables.pop(sequence, {}).values()))
