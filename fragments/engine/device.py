"""What an engine keeps on the device, and the shapes of its steps."""

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
    Draws,
    EngineSettings,
    InputError,
    StepInput,
    StepOutput,
    empty_pages,
    layers_in_pool,
    run,
    shard,
    table_widths,
    write,
    write_biases,
    write_text,
)


def pages_that_fit(most: int, config: Config, settings: EngineSettings, mesh: Mesh | None) -> int:
    """Pages for which devices have memory left, a tenth aside, if they say how much; so many at most."""
    stats = jax.local_devices()[0].memory_stats()  # None on CPUs
    if not stats:
        return most
    with jax.set_mesh(mesh) if mesh else contextlib.nullcontext():
        some = jax.jit(lambda: empty_pages(config, 64, settings.page_size, settings.int8_pages)).lower().compile()
    left = 0.9 * stats["bytes_limit"] - stats["bytes_in_use"]
    with point("pages_that_fit.fitting", left, some, config, settings, mesh):
        fitting = int(64 * left / some.memory_analysis().output_size_in_bytes) - 1  # one is never seen
    if fitting < 1:
        raise InputError("the model leaves no memory for pages: give a higher --mesh-tensor, or --int8")
    return min(most, fitting)


class Device:
    """Weights, pages and texts, and the programs of all steps: a few, that are compiled before any request comes."""

    def __init__(
        self, config: Config, model: Decoder, settings: EngineSettings, mesh: Mesh | None, pages: int, longest: int
    ):
        rows, size, chunk = settings.max_rows, settings.page_size, min(settings.chunk, longest)
        point("Device.model", model)
        self.model, self.settings, self.laid_over = model, settings, mesh
        self.layers = layers_in_pool(config, pages)
        point("Device.layers", config, pages, settings)
        self.widths = table_widths(longest, size)
        with self.computing():
            self.key, self.value = jax.jit(lambda: empty_pages(config, pages, size, settings.int8_pages))()
            # nobody reads the last row and the last place
            self.texts = jax.jit(lambda: shard(jnp.zeros((rows + 1, longest + 2), jnp.int32), None, None))()
            none = Biases(*(np.zeros((rows + 1, BIASES), kind) for kind in (np.int32, np.float32, np.int32)))
            self.biases = jax.jit(lambda: jax.tree.map(lambda x: shard(jnp.array(x), None, None), none))()
        self.rows = sorted({n for n in setting("rows_of_steps") if n < rows} | {rows})  # to draw a token each
        self.chunk, parts = chunk, {max(chunk // share, 1) for share in setting("part_shares")}
        self.parts = {length: min(chunk // length, rows) for length in sorted(parts)}  # of prompts: length, texts

    def computing(self) -> contextlib.AbstractContextManager[object]:
        return jax.set_mesh(self.laid_over) if self.laid_over else contextlib.nullcontext()

    def warm_up(self) -> Iterator[str]:
        """Compiles all that steps can be, and says after each what it was."""
        self.write_text(self.settings.max_rows, [])
        self.write_biases(self.settings.max_rows, [(0, 0.0, 0)])
        guesses = self.settings.guesses
        shapes = {(rows, 1) for rows in self.rows} | {(n, T) for T, most in self.parts.items() for n in (1, most)}
        steps = [(rows, length, 0, "") for rows, length in sorted(shapes)]
        steps += [(most, length, 0, ", each scored") for length, most in self.parts.items()]
        if guesses:
            steps += [(rows, 1 + guesses, guesses, f", of which {guesses} are guessed") for rows in self.rows]
        for width in self.widths:
            for rows, length, guessed, how in steps:
                jax.block_until_ready(self.run(self.nothing(rows, width, guessed), length, whole=bool(how)))
                yield f"{rows} x {length} tokens{how}, {width * self.settings.page_size} before"

    def rows_for(self, texts: int) -> int:
        """Rows of the smallest step that draws a token of each."""
        return next(rows for rows in self.rows if rows >= texts)

    def part_length(self, left: int) -> int:
        """The length of the next part of a prompt: one that is filled, or of which a quarter is left over at most."""
        shortest = next((length for length in self.parts if left <= length), max(self.parts))
        filled = [length for length in self.parts if length <= left]
        return filled[-1] if filled and left < 3 / 4 * shortest else shortest

    def write_text(self, slot: int, text: list[int]) -> None:
        point("Device.write_text", slot, text)
        padded = np.zeros(self.texts.shape[1], np.int32)
        padded[: len(text)] = text
        with self.computing():
            self.texts = write_text(self.texts, slot, padded)

    def write_biases(self, slot: int, biases: list[tuple[int, float, int]]) -> None:
        """Gives a row its biases, at least one; how many of them count is said by each step."""
        columns = zip(*biases, strict=True)
        own = (np.resize(np.array(column, x.dtype), BIASES) for column, x in zip(columns, self.biases, strict=True))
        with self.computing():
            self.biases = write_biases(self.biases, slot, Biases(*own))

    def nothing(self, rows: int, pages: int, guesses: int) -> StepInput:
        """The input of a step in which nothing is to be done, with room for so many pages of each text."""
        types = {"prompt": np.int32, "top_k": np.int32, "seed": np.uint32, "biases": np.int32}
        sampling = Draws(**{name: np.zeros(rows, types.get(name, np.float32)) for name in Draws._fields})
        sampling.top_p[:] = sampling.repetition_penalty[:] = 1
        slots, zeros = np.full(rows, self.settings.max_rows, np.int32), np.zeros(rows, np.int32)
        width = next(width for width in self.widths if width >= pages)
        guessed, tables = np.zeros((rows, guesses), np.int32), np.zeros((rows, width), np.int32)
        point("Device.nothing", tables)
        return StepInput(slots, zeros, zeros.copy(), zeros > 0, guessed, tables, np.array(False), sampling)

    def run(self, step: StepInput, length: int, whole: bool) -> StepOutput:
        """Starts a step."""
        key, value, texts, biases = self.key, self.value, self.texts, self.biases
        with self.computing():
            output, cache, self.texts = run(self.model, key, value, texts, biases, self.layers, step, length, whole)
            self.key, self.value = write(key, value, cache, step, length)
        return output
