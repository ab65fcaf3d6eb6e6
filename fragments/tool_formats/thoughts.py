"""What a model thinks before its answer, apart from it.

Sources: the published chat templates of DeepSeek R1, Qwen3, GLM 4.5 and Magistral; OpenAI's description of harmony.
"""

import re

from generator.language.roles import HARMONY, MARKS, THOUGHTS, AnyTokenizer, Detokenizer


class MarkedText(Detokenizer):
    """Decodes tokens, with marks that are special tokens."""

    def __init__(self, tokenizer: AnyTokenizer, prompt: list[int]):
        super().__init__(tokenizer, prompt)
        self.marks = {token: text for token, text in tokenizer.special.items() if text in MARKS}

    def add(self, token: int) -> str:
        if token not in self.marks:
            return super().add(token)
        before = self.end()
        return before + self.marks[token]


def partial(text: str, mark: str) -> int:
    """Returns how many letters at the end of a text may be the beginning of a mark."""
    return next((n for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), 0)


class Thoughts:
    """Separates what comes first, between two marks, from the answer; the same parts, however the text is split."""

    def __init__(self, begin: str, end: str, is_begun: bool):
        """Takes the marks, and whether the prompt has the first one."""
        self.begin, self.end, self.is_begun = begin, end, is_begun
        self.is_over = False  # whether only the answer can follow
        self.is_trimmed = False  # whether white space at the beginning of a part is left out
        self.pending = ""

    def add(self, new: str, is_end: bool) -> tuple[str, str]:
        """Adds new text; returns what is certain to be thoughts, and what is certain to be the answer."""
        self.pending += new
        thoughts = ""
        if not (self.is_begun or self.is_over):
            first = self.pending.lstrip()
            if first.startswith(self.begin):
                self.is_begun = self.is_trimmed = True
                self.pending = first.removeprefix(self.begin)
            elif is_end or not self.begin.startswith(first):
                self.is_over = True
        if self.is_begun and not self.is_over:
            place = self.pending.find(self.end)
            waiting = 0 if is_end else partial(self.pending, self.end)
            until = place if place >= 0 else len(self.pending) - waiting
            thoughts = self.trim(self.pending[:until].rstrip())
            if place >= 0:
                self.is_over = self.is_trimmed = True
                self.pending = self.pending[place + len(self.end) :]
            else:
                self.pending = self.pending[len(self.pending[:until].rstrip()) :]
        answer = self.trim(self.pending) if self.is_over else ""
        self.pending = "" if self.is_over else self.pending
        return thoughts, answer

    def trim(self, text: str) -> str:
        """Returns a text, without white space at the beginning of a part."""
        text = text.lstrip() if self.is_trimmed else text
        self.is_trimmed = self.is_trimmed and not text
        return text


class Channels:
    """Separates the messages of an answer in harmony: thoughts, the answer, and calls, which stay as they are."""

    def __init__(self):
        self.pending = ""
        self.header: str | None = ""  # of the message, as far as it is read; None within a message
        self.is_marked = False  # whether any mark has come
        self.is_thought = self.is_call = False

    def add(self, new: str, is_end: bool) -> tuple[str, str]:
        self.pending += new
        thoughts = answer = ""
        while self.pending:
            mark = re.search(rf"<\|({'|'.join(HARMONY)})\|>", self.pending)
            waiting = 0 if is_end else max(partial(self.pending, f"<|{name}|>") for name in HARMONY)
            text = self.pending[: mark.start() if mark else len(self.pending) - waiting]
            self.pending = self.pending[mark.end() if mark else len(text) :]
            if self.header is not None:
                self.header += text
            elif self.is_thought:
                thoughts += text
            else:
                answer += text
            if not mark:
                break
            answer += self.follow(mark[1])
        if is_end and not self.is_marked:
            answer += self.header
        return thoughts, answer

    def follow(self, name: str) -> str:
        """Goes on to a header or to a message. Returns the text that marks a call."""
        self.is_marked = True
        if name == "message" and self.header is not None:
            header, self.header = self.header, None
            self.is_call = "to=functions." in header
            self.is_thought = not self.is_call and "analysis" in header
            return f"<|channel|>{header}<|message|>" if self.is_call else ""
        if name in ("channel", "constrain") and self.header is not None:
            self.header += f"<|{name}|>" if self.header else ""
            return ""
        end = "<|call|>" if self.is_call else ""
        self.is_call = self.is_thought = False
        self.header = "" if name in ("start", "channel") else None
        return end


def find_thoughts(texts: str, tokenizer: AnyTokenizer, prompt: list[int]) -> Thoughts | Channels | None:
    """Returns what separates the thoughts of an answer to a prompt; None if there are none.

    Args:
        texts: chat templates, whose marks tell whether the model thinks.
    """
    if "<|channel|>" in texts:
        return Channels()
    text = MarkedText(tokenizer, [])
    before = ("".join(text.add(token) for token in prompt[-32:]) + text.end()).rstrip()
    for begin, end in THOUGHTS:
        if end in texts and not before.endswith(end):
            return Thoughts(begin, end, before.endswith(begin))
    return None
