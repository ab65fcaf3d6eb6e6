"""Grammars that texts follow: which tokens one allows next, by llguidance.

Source: Willard and Louf 2023, arXiv 2307.09702, section 3; Koo et al. 2024, arXiv 2407.08103, section 3 (tokens).
"""

import concurrent.futures
import functools
import re
import threading
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask_par, fill_next_token_bitmask_par_with_draft_tokens

from generator.language.roles import AnyTokenizer, InputError, has_text, token_bytes

LONGEST_GRAMMAR = 256 * 1024  # characters


MOST_LINES = 2000  # of a grammar; chains of many more rules take llguidance minutes


COMPILE_SECONDS = 10


STACK_BYTES = 512 * 2**20  # of the compile thread: llguidance recurses along chains of rules


# any tokens may spell the text: some tokenizers put a space before it, so their tokens cannot be forced
ANY_TOKENS = '\n%llguidance {"no_forcing": true}\n'


class Vocabulary:
    """A tokenizer as llguidance reads it."""

    def __init__(self, tokenizer: AnyTokenizer, ends: Collection[int], vocab_size: int):
        """Lists the bytes of each token. Ids that have no text are special: no grammar allows them."""
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
        """Takes the tokens that end a text; a grammar allows them once the text matches."""
        self.tokenizer: LLTokenizer | None = None
        self.ends = sorted(ends)
        if ends:
            vocabulary = TokenizerWrapper(Vocabulary(tokenizer, ends, vocab_size))
            self.tokenizer = LLTokenizer(vocabulary, vocab_size, self.ends)
        self.executor = LLExecutor()
        self.compiled = functools.lru_cache(16)(self.compile)  # some take tens of megabytes
        self.compiling = concurrent.futures.ThreadPoolExecutor(1, "grammars")
        before = threading.stack_size(STACK_BYTES)
        try:
            self.compiling.submit(int).result()  # starts the thread
        finally:
            threading.stack_size(before)

    def compile(self, grammar: str) -> LLMatcher:
        if self.tokenizer is None:
            raise InputError("nothing says which token ends a text: name eos_token_id in generation_config.json")
        if len(grammar) > LONGEST_GRAMMAR:
            raise InputError(f"the grammar has {len(grammar):,} characters: at most {LONGEST_GRAMMAR:,} are allowed")
        if (lines := grammar.count("\n") + 1) > MOST_LINES:
            raise InputError(f"the grammar has {lines:,} lines: at most {MOST_LINES:,} are allowed")
        future = self.compiling.submit(LLMatcher, self.tokenizer, grammar + ANY_TOKENS, log_level=0)
        try:
            matcher = future.result(COMPILE_SECONDS)
        except TimeoutError:
            future.cancel()  # unless it has begun
            problem = f"the grammar did not compile within {COMPILE_SECONDS} seconds, or waited for others"
            raise InputError(f"{problem}: simplify it, or try again later") from None
        allowed = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        words = re.split("<state>|<backtrace>", matcher.get_error())[0].strip()
        if matcher.is_error() and not words.startswith("NoExtension"):
            raise InputError(words[:500])
        tokens = {*np.flatnonzero(np.unpackbits(allowed, bitorder="little")).tolist()}
        if matcher.is_error() or not (tokens - {*self.ends} or matcher.is_accepting()):
            raise InputError("no text of this vocabulary has that form")
        return matcher

    def matcher(self, grammar: str) -> LLMatcher:
        """Returns the state of a grammar in llguidance's form of Lark, before the first token.

        Compiling a new grammar can take COMPILE_SECONDS. Raises InputError, with the message of llguidance, if the
        grammar is not valid or not supported, or if no text matches it.
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
