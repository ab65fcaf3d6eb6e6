"""The persistent batch: what steps need of running sequences, in arrays by slot.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (block tables).
"""

import numpy as np

from generator.language import point
from generator.language.roles import Request, SamplingMetadata, StepInput


def default_sampling_metadata(sequences: int) -> SamplingMetadata:
    """Returns the settings of greedy sampling for so many sequences."""
    types = {"prompt": np.int32, "top_k": np.int32, "seed": np.uint32, "biases": np.int32}
    point("default_sampling_metadata.types", types)
    fields = SamplingMetadata._fields
    sampling = SamplingMetadata(*(np.zeros(sequences, types.get(name, np.float32)) for name in fields))
    sampling.top_p[:] = sampling.repetition_penalty[:] = 1
    return sampling


class InputBatch:
    """Arrays of running sequences by slot, which change where one enters or grows. The last slot is for padding."""

    def __init__(self, slots: int, pages: int):
        """Takes the numbers of slots, and of pages of the longest sequence."""
        self.block_tables = np.zeros((slots + 1, pages), np.int32)
        self.top = np.zeros(slots + 1, bool)  # whether a sequence asks for the likeliest tokens
        self.sampling = default_sampling_metadata(slots + 1)

    def add(self, request: Request, values: dict[str, int]) -> None:
        """Writes the row of a request that has a slot and pages now; `values` are the columns that sampling lacks."""
        for name, column in self.sampling._asdict().items():
            column[request.slot] = values[name] if name in values else getattr(request.sampling, name)
        self.top[request.slot] = request.sampling.logprobs > 0
        self.block_tables[request.slot] = 0
        self.set_pages(request)

    def set_pages(self, request: Request) -> None:
        self.block_tables[request.slot, : len(request.pages)] = request.pages

    def step(self, requests: list[Request], rows: int, width: int) -> StepInput:
        """Returns the input of a step of these requests, which says nothing about their tokens yet."""
        slots, zeros = np.full(rows, len(self.top) - 1, np.int32), np.zeros(rows, np.int32)
        slots[: len(requests)] = [request.slot for request in requests]
        sampling = SamplingMetadata(*(column[slots] for column in self.sampling))
        block_tables = self.block_tables[slots, :width]
        top = np.array(self.top[slots].any())
        return StepInput(slots, zeros, zeros.copy(), zeros > 0, block_tables, top, sampling)
