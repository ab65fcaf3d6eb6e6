"""Tool calls apart from the text that they are in, as it is generated."""

from generator.language import point
from generator.language.roles import BEGIN, read_call


class ToolCalls:
    """Separates tool calls from a text as it is generated: the same ones, however it is split."""

    def __init__(self) -> None:
        self.pending = ""  # text that may belong to a call
        self.count = 0  # calls so far
        self.is_after_call = False  # whether nothing but white space has followed a call
        point("ToolCalls.start")

    def add(self, new: str, is_end: bool) -> tuple[str, list[dict[str, str]]]:
        """Adds new text; returns the text outside of calls, and the calls that are complete."""
        self.pending += new
        outside = ""
        calls = []
        place = 0
        while place >= 0:
            with point("ToolCalls.begin", place):
                begin = self.pending.find(BEGIN, place)
            with point("ToolCalls.read", begin, is_end):
                read, place = read_call(self.pending, begin + len(BEGIN), is_end) if begin >= 0 else ([], -1)
            if read:
                calls += read
                outside += self.release(begin)
                self.pending = self.pending[place - begin :]
                self.is_after_call = True
                place = 0
        self.count += len(calls)
        with point("ToolCalls.partial"):
            partial = next((n for n in range(len(BEGIN) - 1, 0, -1) if self.pending.endswith(BEGIN[:n])), 0)
        until = begin if begin >= 0 else len(self.pending) - (0 if is_end else partial)
        if is_end or not self.is_after_call or self.pending[:until].strip():
            outside += self.release(until)
        return outside, calls

    def release(self, until: int) -> str:
        """Returns what is pending before this place, without white space that is all there is behind a call."""
        text, self.pending = self.pending[:until], self.pending[until:]
        point("ToolCalls.released", text)
        if self.is_after_call and not text.strip():
            return ""
        self.is_after_call = False
        return text
