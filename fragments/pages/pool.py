"""Which pages of the pool are whose.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (block tables, sharing, counts of references).
"""

import hashlib
from collections.abc import Sequence

import numpy as np


class PagePool:
    """Pages 1 to `pages` - 1, free or held by texts. A full page is found again by its tokens and all before them."""

    def __init__(self, pages: int):
        self.pages = pages
        self.holders = [0] * pages  # texts that hold a page
        self.free = dict.fromkeys(range(1, pages))  # in the order in which they are given away
        self.digests: dict[int, bytes] = {}  # of full pages, held or free
        self.found: dict[bytes, int] = {}

    def take(self) -> int:
        """A page that is free, the one that was so for longest: what it had is forgotten."""
        page = next(iter(self.free))
        del self.free[page]
        if digest := self.digests.pop(page, None):
            del self.found[digest]
        self.holders[page] = 1
        return page

    def share(self, digest: bytes) -> int | None:
        """The page of that digest, held once more, if there is one."""
        page = self.found.get(digest)
        if page is not None:
            self.holders[page] += 1
            self.free.pop(page, None)
        return page

    def give_back(self, pages: Sequence[int]) -> None:
        """A text's pages, in order: the last ones are the first to be taken again, as fewer texts begin with them."""
        for page in reversed(pages):
            self.holders[page] -= 1
            if not self.holders[page]:
                self.free[page] = None

    def name(self, page: int, digest: bytes) -> None:
        """Says what a full page holds, unless another page holds it too."""
        if digest not in self.found:
            self.found[digest], self.digests[page] = page, digest


def page_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """Of a full page's tokens and all before them, by the digest of the page before: no text can forge another's."""
    return hashlib.blake2b(before + np.array(tokens, np.int32).tobytes(), digest_size=16).digest()
