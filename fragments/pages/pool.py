"""Allocation of the KV cache's pages to sequences.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (block tables, sharing, reference counts).
"""

import hashlib
from collections.abc import Sequence

import numpy as np


class PagePool:
    """Pages 1 to `pages` - 1, free or in use. A full page is found by a digest of its tokens and of all before them."""

    def __init__(self, pages: int):
        self.pages = pages
        self.ref_count = [0] * pages  # sequences that use a page
        self.free_pages = dict.fromkeys(range(1, pages))  # in the order in which they are allocated
        self.digests: dict[int, bytes] = {}  # of full pages, in use or free
        self.page_of: dict[bytes, int] = {}

    def allocate(self) -> int:
        """Allocates the page that has been free for longest, and evicts what it held."""
        page = next(iter(self.free_pages))
        del self.free_pages[page]
        if digest := self.digests.pop(page, None):
            del self.page_of[digest]
        self.ref_count[page] = 1
        return page

    def share(self, digest: bytes) -> int | None:
        """Returns the page of that digest, with one more reference, or None if there is none."""
        page = self.page_of.get(digest)
        if page is not None:
            self.ref_count[page] += 1
            self.free_pages.pop(page, None)
        return page

    def free(self, pages: Sequence[int]) -> None:
        """Drops references to a sequence's pages, in order; the last are evicted first, as fewer prompts share them."""
        for page in reversed(pages):
            self.ref_count[page] -= 1
            if not self.ref_count[page]:
                self.free_pages[page] = None

    def register(self, page: int, digest: bytes) -> None:
        """Makes a full page findable by its digest, unless another page already is."""
        if digest not in self.page_of:
            self.page_of[digest], self.digests[page] = page, digest


def page_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """Returns the digest of a full page, chained to that of the page before; no prompt can forge another's."""
    return hashlib.blake2b(before + np.array(tokens, np.int32).tobytes(), digest_size=16).digest()
