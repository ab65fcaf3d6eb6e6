"""Incremental detokenization."""

import codecs

from generator.language.roles import (
    AnyTokenizer,
    has_text,
    is_byte_level,
    load_generation,
    token_byte,
)

CONTEXT = 4  # bytes, and so tokens, of a character at most


def load_ends(tokenizer: AnyTokenizer, path: str) -> set[int]:
    """Returns the tokens that end a text: eos, and others that the files beside tokenizer.json name."""
    return {tokenizer.eos, *load_generation(path)["eos_token_id"]} - {None}


class Detokenizer:
    """Decodes tokens one by one, at a cost that does not grow with the text.

    Returned text never changes, and in the end equals `decode` of all tokens. So a character waits for its last byte.
    Where bytes are tokens (`<0xE4>`, Llama 2), an invalid byte turns its whole run of bytes into U+FFFD, so a run waits
    for its end.
    """

    def __init__(self, tokenizer: AnyTokenizer, prompt: list[int]):
        self.tokenizer = tokenizer
        self.byte_level = is_byte_level(tokenizer)
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.before: list[int] = []  # the last token with text, on which the next one's spacing depends
        self.run: list[int] = []  # pending byte tokens, at most one run
        self.prompt_characters = 0  # characters of the run that are in the prompt
        if self.byte_level:
            self.decode_token_bytes(prompt[-CONTEXT:])
        else:
            at = len(prompt) - 1
            while at >= 0 and (self.is_byte(prompt[at]) or not has_text(tokenizer, prompt[at])):
                at -= 1
            self.before = prompt[max(at, 0) : at + 1]
            self.run = [i for i in prompt[at + 1 :] if self.is_byte(i)]
            run = b"".join(token_byte(tokenizer, i) or b"" for i in self.run)
            self.prompt_characters = len(run.decode(errors="ignore"))

    def is_byte(self, token: int) -> bool:
        return token_byte(self.tokenizer, token) is not None

    def decode_token_bytes(self, tokens: list[int]) -> str:
        """Returns the characters that these tokens of a byte-level vocabulary complete."""
        parts = (token_byte(self.tokenizer, i) or b"" for i in tokens if has_text(self.tokenizer, i))
        return self.utf8.decode(b"".join(parts))

    def end_run(self, token: list[int]) -> str:
        """Returns the text of the run and of the token that ends it."""
        tokens = [*self.before, *self.run, *token]
        skipped = len(self.tokenizer.decode(self.before)) + self.prompt_characters
        self.run = []
        self.prompt_characters = 0
        return self.tokenizer.decode(tokens)[skipped:]

    def add(self, token: int) -> str:
        """Adds a token, and returns the text that is now final."""
        if not has_text(self.tokenizer, token):
            return ""
        if self.byte_level:
            return self.decode_token_bytes([token])
        if self.is_byte(token):
            self.run.append(token)
            return ""
        new = self.end_run([token])
        self.before = [token]
        return new

    def end(self) -> str:
        """Returns the text held back, after the last token."""
        return self.utf8.decode(b"", final=True) if self.byte_level else self.end_run([])
