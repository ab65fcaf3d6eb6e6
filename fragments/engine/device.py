"""The state of an engine on the device, and the shapes of its steps."""

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from generator.language import point, setting
from generator.language.roles import (
    BIASES,
    Biases,
    Config,
    Decoder,
    EngineSettings,
    InputError,
    SamplingMetadata,
    StepInput,
    StepOutput,
    block_table_widths,
    empty_pages,
    layers_in_pool,
    run,
    shard,
    write,
    write_row,
)


def computing(mesh: Mesh | None) -> contextlib.AbstractContextManager[object]:
    return jax.set_mesh(mesh) if mesh else contextlib.nullcontext()


def pages_that_fit(most: int, config: Config, settings: EngineSettings, mesh: Mesh | None) -> int:
    """Returns how many pages fit into 90 % of the devices' free memory, at most `most`; that where they do not tell."""
    stats = jax.local_devices()[0].memory_stats()  # None on CPUs
    if not stats:
        return most
    with computing(mesh):
        some = jax.jit(lambda: empty_pages(config, 64, settings.page_size)).lower().compile()
    left = 0.9 * stats["bytes_limit"] - stats["bytes_in_use"]
    with point("pages_that_fit.fitting", left, some, config, settings, mesh):
        fitting = int(64 * left / some.memory_analysis().output_size_in_bytes) - 1  # one is never read
    if fitting < 1:
        raise InputError("the model leaves no memory for the KV cache: raise --mesh-tensor, or give --int8")
    return min(most, fitting)


class Device:
    """Weights, KV cache and tokens, and the compiled steps: a few shapes, compiled before the first request."""

    def __init__(
        self, config: Config, model: Decoder, settings: EngineSettings, mesh: Mesh | None, pages: int, longest: int
    ):
        rows, size, chunk = settings.max_sequences, settings.page_size, min(settings.chunk, longest)
        point("Device.model", model)
        self.model, self.settings, self.laid_over = model, settings, mesh
        self.layers = layers_in_pool(config, pages)
        point("Device.layers", config, pages, settings)
        self.widths = block_table_widths(longest, size)
        with computing(self.laid_over):
            self.key, self.value = jax.jit(lambda: empty_pages(config, pages, size))()
            # the last row and the last column are scratch
            self.sequences = jax.jit(lambda: shard(jnp.zeros((rows + 1, longest + 2), jnp.int32), None, None))()
            none = Biases(*(np.zeros((rows + 1, BIASES), kind) for kind in (np.int32, np.float32, np.int32)))
            self.biases = jax.jit(lambda: jax.tree.map(lambda x: shard(jnp.array(x), None, None), none))()
        self.rows = sorted({n for n in setting("decode_batch_sizes") if n < rows} | {rows})  # of decode steps
        self.chunk, lengths = chunk, {max(chunk // divisor, 1) for divisor in setting("prefill_chunks")}
        self.chunks = {length: min(chunk // length, rows) for length in sorted(lengths)}  # of prefill: batch sizes

    def warm_up(self) -> Iterator[str]:
        """Compiles every shape of step, and yields a description of each."""
        self.write_sequence(self.settings.max_sequences, [])
        self.write_biases(self.settings.max_sequences, [(0, 0.0, 0)])
        shapes = {(rows, 1) for rows in self.rows} | {(n, T) for T, most in self.chunks.items() for n in (1, most)}
        steps = [(rows, length, "") for rows, length in sorted(shapes)]
        steps += [(most, length, ", all scored") for length, most in self.chunks.items()]
        for width in self.widths:
            cached = f"{width * self.settings.page_size} cached"
            for rows, length, how in steps:
                jax.block_until_ready(self.run(self.nothing(rows, width), length, whole=bool(how)))
                yield f"{rows} x {length} tokens{how}, {cached}"
            point("Device.warm_up", width, cached)

    def rows_for(self, sequences: int) -> int:
        """Returns the batch size of the smallest decode step with room for so many sequences."""
        return next(rows for rows in self.rows if rows >= sequences)

    def chunk_length(self, left: int) -> int:
        """Returns the length of the next prefill chunk: one for all with up to a quarter of padding, or a full one."""
        shortest = next((length for length in self.chunks if left <= length), max(self.chunks))
        filled = [length for length in self.chunks if length <= left]
        return filled[-1] if filled and left < 3 / 4 * shortest else shortest

    def write_sequence(self, slot: int, sequence: list[int]) -> None:
        point("Device.write_sequence", slot, sequence)
        padded = np.zeros(self.sequences.shape[1], np.int32)
        padded[: len(sequence)] = sequence
        with computing(self.laid_over):
            self.sequences = write_row(self.sequences, slot, padded)

    def write_biases(self, slot: int, biases: list[tuple[int, float, int]]) -> None:
        """Writes the logit biases of a slot, at least one; each step says how many of them apply."""
        columns = zip(*biases, strict=True)
        own = (np.resize(np.array(column, x.dtype), BIASES) for column, x in zip(columns, self.biases, strict=True))
        with computing(self.laid_over):
            self.biases = write_row(self.biases, slot, Biases(*own))

    def nothing(self, rows: int, pages: int) -> StepInput:
        """Returns the input of a step that does nothing, with block tables for so many pages of each sequence."""
        types = {"prompt": np.int32, "top_k": np.int32, "seed": np.uint32, "biases": np.int32}
        sampling = SamplingMetadata(*(np.zeros(rows, types.get(name, np.float32)) for name in SamplingMetadata._fields))
        sampling.top_p[:] = sampling.repetition_penalty[:] = 1
        slots, zeros = np.full(rows, self.settings.max_sequences, np.int32), np.zeros(rows, np.int32)
        width = next(width for width in self.widths if width >= pages)
        block_tables = np.zeros((rows, width), np.int32)
        point("Device.nothing", block_tables)
        return StepInput(slots, zeros, zeros.copy(), zeros > 0, block_tables, np.array(False), sampling)

    def run(self, step: StepInput, length: int, whole: bool) -> StepOutput:
        """Starts a step, without waiting for it."""
        k, v, tokens, biases = self.key, self.value, self.sequences, self.biases
        with computing(self.laid_over):
            output, cache, self.sequences = run(self.model, k, v, tokens, biases, self.layers, step, length, whole)
            self.key, self.value = write(k, v, cache, step, length)
        return output
