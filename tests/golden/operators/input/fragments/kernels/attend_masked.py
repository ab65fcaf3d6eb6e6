"""Attention to the mean of one's own document."""

from generator.language import threaded


def attend(h: list[float], segment_ids: list[int] = threaded()) -> list[float]:
    return [mean([v for v, s in zip(h, segment_ids) if s == segment]) for segment in segment_ids]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
