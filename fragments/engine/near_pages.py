"""An engine of layers that see the nearest tokens only: texts hold the pages of the others, and few of these.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (pages that are given back and shared).
"""

import contextlib

import jax
import numpy as np

from generator.language import proceed, provide, requires, splice
from generator.language.roles import (
    Config,
    EngineSettings,
    InputError,
    NearPages,
    empty_pages,
    near_layers,
    oldest_seen,
    pool_is_whole,
    seen_at_most,
)

requires("sliding_window or chunked_attention")


def near_room(config: Config, settings: EngineSettings) -> int:
    """Pages of each near layer: twice what all texts that run can hold, and the one that is never seen.

    What was given back stays in the other half, for texts with the same beginning.
    """
    longest, size = settings.max_length or config.context_length, settings.page_size
    span = seen_at_most(config) + max(settings.chunk, 1 + settings.guesses)  # places of a step, and what they see
    return 1 + settings.max_rows * min(2 * (-(-span // size) + 1), -(-longest // size))


@provide("pages_that_fit")
def near_pages(config, settings) -> np.ndarray:
    return near_room(config, settings) * near_layers(config)


@provide("Device.__init__")
def near_pages(config, settings) -> np.ndarray:
    return near_room(config, settings) * near_layers(config)


@splice("pages_that_fit.fitting")
def _(left, some, config, settings, mesh, fitting, near_pages):
    with jax.set_mesh(mesh) if mesh else contextlib.nullcontext():
        near = jax.jit(lambda: empty_pages(config, 0, settings.page_size, settings.int8_pages)).lower().compile()
    in_near, in_all = (program.memory_analysis().output_size_in_bytes for program in (near, some))
    if in_near > left:
        needed = f"layers that see the nearest tokens only need {in_near / 2**30:.1f} GiB of a device for so many texts"
        raise InputError(f"--max-rows {settings.max_rows}: {needed}: give a lower one, or a higher --mesh-tensor")
    fitting = int(64 * (left - in_near) / max(in_all - in_near, 1)) - 1  # one is never seen


@splice("Device.nothing")
def _(tables):
    tables = np.stack([tables, tables], axis=1)  # of near layers too


@splice("Engine.pool")
def _(self, config, settings):
    room, size = near_room(config, settings), settings.page_size
    self.near = NearPages(room, size, lambda position: oldest_seen(config, position))


@splice("Engine.share")
def _(self, request, text):
    start, most = len(request.digests), self.near.shareable(request.root, request.digests, text, self.pool)
    text = text[: most * self.settings.page_size + 1]
    proceed()
    self.near.share(request, request.digests, start)


@splice("Engine.turned_away", "Engine.left")
def _(self, request):
    self.near.leave(request)


@splice("Engine.tables")
def _(self, step, row, request, count, guesses):
    step.tables[row, 0, : len(request.pages)] = request.pages
    end = request.computed + count + len(guesses)
    for place, page in self.near.move(request, request.computed, end).items():
        step.tables[row, 1, place] = page


@splice("test_engine.whole", optional=True)
def _(engine):
    assert set(engine.near.held) <= set(engine.rows)
    pool_is_whole(engine.near.pool, [[*pages.values()] for pages in engine.near.held.values()])


@splice("Engine.name")
def _(self, request, digest):
    self.near.name(request, len(request.digests), digest)
