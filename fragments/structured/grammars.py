"""Grammars that texts follow: which tokens one allows next, by llguidance.

Source: Willard and Louf 2023, arXiv 2307.09702, section 3; Koo et al. 2024, arXiv 2407.08103, section 3 (tokens).
"""

import functools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask_par, fill_next_token_bitmask_par_with_draft_tokens

from generator.language.roles import AnyTokenizer, InputError, has_text, token_bytes


class Vocabulary:
    """A tokenizer as llguidance reads it."""

    def __init__(self, tokenizer: AnyTokenizer, ends: Collection[int], vocab_size: int):
        """Lists the bytes of each token; what is no token of the tokenizer is special, which no grammar allows."""
        self.tokenizer = tokenizer
        self.eos_token_id = min(ends)
        self.bos_token_id = None
        known = [token for token in range(min(tokenizer.vocab_size, vocab_size)) if has_text(tokenizer, token)]
        self.tokens = [f"<{token}>".encode() for token in range(vocab_size)]
        for token in known:
            self.tokens[token] = token_bytes(tokenizer, token)
        self.special_token_ids = sorted({*range(vocab_size)} - {*known})

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


class Grammars:
    """Compiles grammars for a vocabulary, and computes the tokens that they allow."""

    def __init__(self, tokenizer: AnyTokenizer, ends: Collection[int], vocab_size: int):
        """Takes the tokens that end a text, which a grammar allows where it is satisfied."""
        vocabulary = TokenizerWrapper(Vocabulary(tokenizer, ends, vocab_size))
        self.tokenizer = LLTokenizer(vocabulary, vocab_size, sorted(ends))
        self.executor = LLExecutor()
        self.compiled = functools.lru_cache(256)(self.compile)

    def compile(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise InputError(matcher.get_error())
        return matcher

    def matcher(self, grammar: str) -> LLMatcher:
        """Returns the state of a grammar before the first token. A new grammar takes up to seconds.

        Raises InputError, in the words of llguidance, for what is no grammar or is more than it supports.
        """
        return self.compiled(grammar).deep_copy()

    def fill(self, allowed: np.ndarray, followed: Sequence[tuple[int, LLMatcher, list[int]]]) -> None:
        """Writes which tokens grammars allow, a bit for each token.

        Args:
            allowed: int32 [R, V / 32], a row for each place of each sequence.
            followed: first row of a sequence, state of its grammar, and draft tokens, each of which has a further row.
        """
        plain: list[Any] = [(matcher, row) for row, matcher, drafts in followed if not drafts]
        drafted: list[Any] = [(matcher, row, drafts) for row, matcher, drafts in followed if drafts]
        if plain:
            fill_next_token_bitmask_par(self.executor, plain, allowed)
        if drafted:
            fill_next_token_bitmask_par_with_draft_tokens(self.executor, drafted, allowed)
