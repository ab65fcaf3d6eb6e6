"""Stop strings."""


class StopString:
    """A stop string with the failure function of its prefixes, for a search in linear time.

    Source: Knuth, Morris and Pratt 1977, SIAM Journal on Computing 6(2).
    """

    def __init__(self, text: str):
        self.text = text
        self.shorter = [0]
        for letter in text[1:]:
            self.shorter.append(self.follow(self.shorter[-1], letter))

    def follow(self, length: int, letter: str) -> int:
        """Returns the length of the longest prefix that a text ends with, from that before its last letter."""
        while length and self.text[length] != letter:
            length = self.shorter[length - 1]
        return length + (self.text[length] == letter)


class Stops:
    """Cuts a text before the first stop string; holds back what may be the beginning of one."""

    def __init__(self, stops: list[StopString]):
        self.stops = stops
        self.lengths = [0] * len(stops)  # of the prefix of each that the text ends with
        self.buffered = ""
        self.matched = False

    def add(self, new: str) -> str:
        """Adds new text, and returns the text that is now final."""
        starts = []
        for i, stop in enumerate(self.stops):
            for place, letter in enumerate(new):
                self.lengths[i] = stop.follow(self.lengths[i], letter)
                if self.lengths[i] == len(stop.text):
                    starts.append(len(self.buffered) + place + 1 - len(stop.text))
                    break
        self.buffered = self.buffered + new
        self.matched = bool(starts)
        certain = min(starts) if starts else len(self.buffered) - max(self.lengths, default=0)
        text = self.buffered[:certain]
        self.buffered = "" if starts else self.buffered[certain:]
        return text
