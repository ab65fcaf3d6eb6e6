"""Goodput: the share of a run's time that goes into steps."""

import time


class Goodput:
    """Where the time of a run goes: all since the last call of `spent` went into the part that it names."""

    PARTS = "steps", "data", "evaluation", "checkpoints", "compiling", "start-up", "other"

    def __init__(self):
        self.seconds, self.clock = dict.fromkeys(self.PARTS, 0.0), time.perf_counter()

    def spent(self, part: str) -> None:
        before, self.clock = self.clock, time.perf_counter()
        self.seconds[part] += self.clock - before

    def shares(self) -> dict[str, float]:
        return {part: seconds / sum(self.seconds.values()) for part, seconds in self.seconds.items()}
