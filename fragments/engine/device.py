"""The state of an engine on the device, and the shapes of its steps."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from generator.language import point, setting
from generator.language.roles import (
    BIASES,
    Biases,
    Decoder,
    EngineSettings,
    InputError,
    ModelConfig,
    Slots,
    StepInput,
    StepOutput,
    block_table_widths,
    default_sampling_metadata,
    empty_state,
    run,
    shard,
    write,
    write_slot,
)


def computing(mesh: Mesh | None) -> contextlib.AbstractContextManager[object]:
    return jax.set_mesh(mesh) if mesh else contextlib.nullcontext()


def pages_that_fit(most: int, config: ModelConfig, settings: EngineSettings, mesh: Mesh | None) -> int:
    """Returns how many pages fit into 90 % of the devices' free memory; `most` if more do, or if it is unknown."""
    stats = jax.local_devices()[0].memory_stats()  # None on CPUs
    if not stats:
        return most
    with computing(mesh):
        pool = jax.jit(lambda: empty_state(config, 64, settings.page_size)).lower().compile()
    left = 0.9 * stats["bytes_limit"] - stats["bytes_in_use"]
    with point("pages_that_fit.fitting", left, pool, config, settings, mesh):
        fitting = int(64 * left / pool.memory_analysis().output_size_in_bytes) - 1  # one is never read
    if fitting < 1:
        remedy = "raise --mesh-tensor"
        point("pages_that_fit.remedy", remedy)
        raise InputError(f"the model leaves no memory for the KV cache: {remedy}")
    return min(most, fitting)


class StepShapes(NamedTuple):
    """The shapes of an engine's steps, each of which is compiled."""

    rows: list[int]  # sequences of a decode step
    chunks: dict[int, int]  # length of a prefill chunk -> sequences of its step
    widths: list[int]  # pages in block tables


class Device:
    """Weights, KV cache and tokens, and the compiled steps: a few shapes, compiled before the first request."""

    def __init__(
        self, config: ModelConfig, model: Decoder, settings: EngineSettings, mesh: Mesh | None, pages: int, longest: int
    ):
        rows, size = settings.max_sequences, settings.page_size
        chunk = min(settings.chunk, longest)
        point("Device.model", model, mesh)
        self.model, self.settings = model, settings
        self.mesh = mesh
        point("Device.layers", config, pages, settings)
        with computing(self.mesh):
            self.state = jax.jit(lambda: empty_state(config, pages, size))()
            none = Biases(*(np.zeros((rows + 1, BIASES), kind) for kind in (np.int32, np.float32, np.int32)))
            slots = Slots(np.zeros((rows + 1, longest + 2), np.int32), none)
            self.slots = jax.jit(lambda: jax.tree.map(lambda x: shard(jnp.array(x), None, None), slots))()
        lengths = {max(chunk // divisor, 1) for divisor in setting("prefill_chunks")}
        self.shapes = StepShapes(
            rows=sorted({n for n in setting("decode_batch_sizes") if n < rows} | {rows}),
            chunks={length: min(chunk // length, rows) for length in sorted(lengths)},
            widths=block_table_widths(longest, size),
        )
        point("Device.made", config)

    def steps(self) -> Iterator[tuple[StepInput, int, bool, str]]:
        """Yields every shape of step: an input that does nothing, its length, whether it scores all, a description."""
        shapes = {(rows, 1) for rows in self.shapes.rows} | {
            (n, T) for T, most in self.shapes.chunks.items() for n in (1, most)
        }
        steps = [(rows, length, "") for rows, length in sorted(shapes)]
        steps += [(most, length, ", all scored") for length, most in self.shapes.chunks.items()]
        for width in self.shapes.widths:
            cached = f"{width * self.settings.page_size} cached"
            for rows, length, how in steps:
                yield self.dummy_step(rows, width), length, bool(how), f"{rows} x {length} tokens{how}, {cached}"
            point("Device.steps", width, cached)

    def warm_up(self) -> Iterator[str]:
        """Compiles every shape of step, and yields a description of each."""
        self.write(self.settings.max_sequences, [], [])
        for step, length, score_all, text in self.steps():
            jax.block_until_ready(self.run(step, length, score_all))
            yield text

    def rows_for(self, sequences: int) -> int:
        """Returns the batch size of the smallest decode step with room for so many sequences."""
        return next(rows for rows in self.shapes.rows if rows >= sequences)

    def width_for(self, pages: int) -> int:
        """Returns the width of the narrowest block tables with room for so many pages of a sequence."""
        return next(width for width in self.shapes.widths if width >= pages)

    def chunk_length(self, left: int) -> int:
        """Returns the length of the next prefill chunk: one for all with up to a quarter of padding, or a full one."""
        lengths = list(self.shapes.chunks)  # in ascending order
        shortest = next((length for length in lengths if left <= length), lengths[-1])
        filled = [length for length in lengths if length <= left]
        return filled[-1] if filled and left < 3 / 4 * shortest else shortest

    def write(self, slot: int, sequence: list[int], biases: list[tuple[int, float, int]]) -> None:
        """Writes the tokens and logit biases of a slot; each step says how many of them there are."""
        point("Device.write", slot, sequence, biases)
        row = jax.tree.map(lambda x: np.zeros(x.shape[1], x.dtype), self.slots)
        row.sequences[: len(sequence)] = sequence
        for place, column in enumerate(zip(*biases, strict=True)):
            row.biases[place][: len(biases)] = column
        with computing(self.mesh):
            self.slots = write_slot(self.slots, slot, row)

    def dummy_step(self, rows: int, pages: int) -> StepInput:
        """Returns the input of a step that does nothing, with block tables for so many pages of each sequence."""
        slots, zeros = np.full(rows, self.settings.max_sequences, np.int32), np.zeros(rows, np.int32)
        block_tables = np.zeros((rows, self.width_for(pages)), np.int32)
        sampling = default_sampling_metadata(rows)
        step = StepInput(slots, zeros, zeros.copy(), zeros > 0, block_tables, np.array(False), sampling)
        point("Device.dummy_step", self, rows, step)
        return step

    def run(self, step: StepInput, length: int, score_all: bool) -> StepOutput:
        """Starts a step, without waiting for it."""
        point("Device.run", step, length, score_all)
        with computing(self.mesh):
            output, new, self.slots = run(self.model, self.state, self.slots, step, length, score_all)
            self.state = write(self.state, new, step, length)
        return output
