"""Allocation of slots for recurrent states to sequences.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (sharing, reference counts, copy on write).
"""

from collections.abc import Hashable, Sequence

from generator.language import requires
from generator.language.roles import PagePool, page_digest

requires("states")


class StateSlots:
    """Slots of states: a sequence holds its latest state, or one after each draft token.

    A state at a page end can be found by others, and stays so when no sequence holds it, until its slot is allocated.
    """

    def __init__(self, slots: int, size: int):
        """Creates a pool of slots, for states at the ends of pages of `size` positions."""
        self.pool = PagePool(slots)
        self.size = size
        self.slots: dict[Hashable, dict[int, int]] = {}  # sequence -> its tokens by then -> slot of the state
        self.last: dict[Hashable, bytes] = {}  # sequence -> digest of its latest page end after the prompt

    def move(self, sequence: Hashable, start: int, ends: Sequence[int]) -> tuple[int, list[int]]:
        """Returns the slot of a sequence's state after `start` tokens, and slots for those after each of `ends`."""
        slots = self.slots.pop(sequence, {})
        read = slots[start] if start else 0
        shared = [slot for slot in slots.values() if slot in self.pool.digests]
        self.pool.free(shared)  # others can find these: they are not written again
        writable = [slot for slot in slots.values() if slot not in shared]
        while len(writable) < len(ends):
            writable.append(self.pool.allocate())
        self.pool.free(writable[len(ends) :])
        self.slots[sequence] = dict(zip(ends, writable, strict=False))
        return read, writable[: len(ends)]

    def shareable(self, root: bytes, digests: Sequence[bytes], sequence: Sequence[int], pool: PagePool) -> int:
        """Returns how many leading pages a sequence can share: all are in `pool`, and the state at their end is here.

        Args:
            root: chained before the digest of its first page.
            digests: of the leading pages it has already.
        """
        shared = len(digests)
        digests = list(digests)
        while (end := (len(digests) + 1) * self.size) < len(sequence):  # at least one token has to be computed
            digests.append(page_digest(digests[-1] if digests else root, sequence[end - self.size : end]))
            if digests[-1] not in pool.page_of:
                break
            if digests[-1] in self.pool.page_of:
                shared = len(digests)
        return shared

    def share(self, sequence: Hashable, computed: int, digests: Sequence[bytes]) -> None:
        """Gives a sequence the state at the end of its shared pages, unless it has computed that itself."""
        tokens = len(digests) * self.size
        if tokens > computed and tokens not in self.slots.get(sequence, {}):
            self.release(sequence)
            self.slots[sequence] = {tokens: self.pool.share(digests[-1])}

    def register(self, sequence: Hashable, prompt: int, place: int, digest: bytes) -> None:
        """Makes a sequence's state at the end of its page `place` findable by the digest of that page.

        Of the page ends after its `prompt` tokens, the latest alone stays findable, where a next turn begins, and one
        from before each preemption.
        """
        end = (place + 1) * self.size
        if end not in self.slots.get(sequence, {}):
            return
        slot = self.slots[sequence][end]
        self.pool.register(slot, digest)
        if end > prompt and slot in self.pool.digests:  # else another sequence has registered its own
            self.forget(self.last.get(sequence))
            self.last[sequence] = digest

    def forget(self, digest: bytes | None) -> None:
        """Makes the slot of a digest the next that is allocated, unless a sequence uses it."""
        slot = self.pool.page_of.get(digest)
        if slot is not None and not self.pool.ref_count[slot]:
            del self.pool.page_of[digest], self.pool.digests[slot]
            del self.pool.free_pages[slot]
            self.pool.free_pages = {slot: None, **self.pool.free_pages}

    def release(self, sequence: Hashable) -> None:
        """Frees the states of a sequence."""
        self.pool.free(list(self.slots.pop(sequence, {}).values()))
        self.last.pop(sequence, None)
