"""Keeps what black makes of texts in the user's cache folder."""

from __future__ import annotations

from importlib.metadata import version

from generator.code.black import LINE_LENGTH
from generator.disk.cache import cache_key, load, store

_KIND = "black"


class FormattedTexts:
    """The texts that this version of black has formatted.

    An entry ends with the digest of its key and text: one that is damaged, or of another text, is made anew.
    """

    def __init__(self) -> None:
        self._version = version("black")

    def recall(self, text: str) -> str | None:
        key = self._key(text)
        match load(_KIND, key):
            case [str(formatted), str(digest)] if digest == cache_key(key, formatted):
                return formatted
        return None

    def remember(self, text: str, formatted: str) -> None:
        key = self._key(text)
        store(_KIND, key, [formatted, cache_key(key, formatted)])

    def _key(self, text: str) -> str:
        return cache_key(self._version, LINE_LENGTH, text)
