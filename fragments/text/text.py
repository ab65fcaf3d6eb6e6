"""Text of tokens as they come."""

import codecs

from generator.language.roles import ByteTokenizer, FileTokenizer, load_generation

CONTEXT = 4  # bytes of a character at most, and so tokens


def load_ends(tokenizer: ByteTokenizer | FileTokenizer, path: str) -> set[int]:
    """Tokens that end a text: eos, and those that the files beside a model's tokenizer.json name, as of a turn."""
    return {tokenizer.eos, *load_generation(path)["eos_token_id"]} - {None}


class Text:
    """The text of tokens as they come.

    What is given out never changes, and in the end it is what `decode` makes of all tokens at once. So a character
    waits for the last of its bytes. Where bytes are tokens of their own (`<0xE4>`, Llama 2), one byte that fits nowhere
    turns its whole run of bytes into U+FFFD, so a run waits for its end. The cost of a token does not grow with the
    text.
    """

    def __init__(self, tokenizer: ByteTokenizer | FileTokenizer, prompt: list[int]):
        self.tokenizer = tokenizer
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.before: list[int] = []  # the last token with text, which says how the next one is written
        self.run: list[int] = []  # bytes whose text is not certain, at most one run
        self.given = 0  # characters of the run that belong to the prompt
        if tokenizer.byte_level:
            self.decode_token_bytes(prompt[-CONTEXT:])
        else:
            at = len(prompt) - 1
            while at >= 0 and (self.is_byte(prompt[at]) or not tokenizer.has_text(prompt[at])):
                at -= 1
            self.before, self.run = prompt[max(at, 0) : at + 1], [i for i in prompt[at + 1 :] if self.is_byte(i)]
            run = b"".join(tokenizer.token_byte(i) or b"" for i in self.run)
            self.given = len(run.decode(errors="ignore"))

    def is_byte(self, token: int) -> bool:
        return self.tokenizer.token_byte(token) is not None

    def decode_token_bytes(self, tokens: list[int]) -> str:
        """The characters that end with these tokens of a byte-level vocabulary."""
        parts = (self.tokenizer.token_byte(i) or b"" for i in tokens if self.tokenizer.has_text(i))
        return self.utf8.decode(b"".join(parts))

    def end_run(self, token: list[int]) -> str:
        """The text of the run and of the token that ends it."""
        tokens, skipped = [*self.before, *self.run, *token], len(self.tokenizer.decode(self.before)) + self.given
        self.run, self.given = [], 0
        return self.tokenizer.decode(tokens)[skipped:]

    def add(self, token: int) -> str:
        """What is certain of the text with one more token, and was not before."""
        if not self.tokenizer.has_text(token):
            return ""
        if self.tokenizer.byte_level:
            return self.decode_token_bytes([token])
        if self.is_byte(token):
            self.run.append(token)
            return ""
        new = self.end_run([token])
        self.before = [token]
        return new

    def end(self) -> str:
        """What was held back, as no more tokens come."""
        return self.utf8.decode(b"", final=True) if self.tokenizer.byte_level else self.end_run([])
