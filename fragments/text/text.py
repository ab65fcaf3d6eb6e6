"""Text of tokens as they come, and what stops it."""

from generator.language.roles import ByteTokenizer, FileTokenizer, load_generation

CONTEXT = 8  # tokens that the text of the next one may depend on: a character has at most four bytes


UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def load_ends(tokenizer: ByteTokenizer | FileTokenizer, path: str) -> set[int]:
    """Tokens that end a text: eos, and those that the files beside a model's tokenizer.json name, as of a turn."""
    return {tokenizer.eos, *load_generation(path)["eos_token_id"]} - {None}


class Text:
    """The text of tokens as they come, up to the first of the strings that stop it.

    A character waits for the last of its bytes, and what may be the beginning of a stop string for its end. Only the
    last tokens are decoded anew with each, so that its cost does not grow with the text.
    """

    def __init__(self, tokenizer: ByteTokenizer | FileTokenizer, prompt: list[int], stops: list[str]):
        self.tokenizer, self.stops = tokenizer, stops
        self.tokens = prompt[-CONTEXT:]
        self.decoded = tokenizer.decode(self.tokens)
        self.seen = len(self.decoded)  # characters of it that are in the text
        self.held, self.stopped = "", False

    def add(self, token: int) -> str:
        """What is certain of the text with one more token, and was not before."""
        self.tokens.append(token)
        before, self.decoded = self.decoded, self.tokenizer.decode(self.tokens)
        whole = len(self.decoded) - self.decoded.endswith(UNKNOWN)
        new, self.seen = self.decoded[self.seen : whole], max(self.seen, whole)
        if self.decoded == before and whole == len(before):
            self.tokens.pop()  # of no text, such as eos
        if len(self.tokens) > 2 * CONTEXT:
            del self.tokens[:-CONTEXT]
            self.decoded = self.tokenizer.decode(self.tokens)
            self.seen = len(self.decoded) - self.decoded.endswith(UNKNOWN)
        return self.cut(new)

    def end(self) -> str:
        """What was held back, as no more tokens come."""
        rest, self.seen = self.decoded[self.seen :], len(self.decoded)
        return self.cut(rest) + self.held if not self.stopped else ""

    def cut(self, new: str) -> str:
        self.held += new
        found = [at for stop in self.stops if (at := self.held.find(stop)) >= 0]
        beginnings = (n for stop in self.stops for n in range(1, len(stop)) if self.held.endswith(stop[:n]))
        self.stopped = bool(found)
        certain = min(found) if found else len(self.held) - max(beginnings, default=0)
        text, self.held = self.held[:certain], "" if found else self.held[certain:]
        return text
