"""An engine for layers with sliding-window or chunked attention, which have a small pool of pages of their own.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (pages that are freed and shared).
"""

import numpy as np

from generator.language import point, proceed, provide, requires, splice
from generator.language.roles import (
    EngineSettings,
    ModelConfig,
    WindowPages,
    pool_is_whole,
    window_layers,
    window_size,
    window_start,
)

requires("sliding_window or chunked_attention")


def window_room(config: ModelConfig, settings: EngineSettings) -> int:
    """Returns the pages of each layer with a window: twice what running sequences use, as free ones cache prefixes."""
    longest = settings.max_length or config.context_length
    size = settings.page_size
    written = settings.chunk  # by a step, at most
    point("window_room.written", settings, written)
    span = window_size(config) + written
    return 1 + settings.max_sequences * min(2 * (-(-span // size) + 1), -(-longest // size))


@provide("pages_that_fit")
def window_pages(config, settings) -> np.ndarray:
    return window_room(config, settings) * window_layers(config)


@provide("Device.__init__")
def window_pages(config, settings) -> np.ndarray:
    return window_room(config, settings) * window_layers(config)


@splice("Device.dummy_step", "Engine.step")
def _(step):
    both = [step.block_tables, np.zeros_like(step.block_tables)]  # of layers without and with a window
    step = step._replace(block_tables=np.stack(both, axis=1))


@splice("Engine.pool")
def _(self, config, settings):
    room = window_room(config, settings)
    size = settings.page_size
    self.window = WindowPages(room, size, lambda position: window_start(config, position))


@splice("Engine.share")
def _(self, request, sequence):
    start = len(request.digests)
    most = self.window.shareable(request.root, request.digests, sequence, self.pool)
    sequence = sequence[: most * self.settings.page_size + 1]
    proceed()
    self.window.share(request, request.digests, start)


@splice("Engine.not_admitted", "Engine.released")
def _(self, request):
    self.window.release(request)


@splice("Engine.block_tables")
def _(self, step, row, request):
    end = request.computed + int(step.counts[row])
    for place, page in self.window.move(request, request.computed, end).items():
        step.block_tables[row, 1, place] = page


@splice("test_engine.whole", optional=True)
def _(engine):
    assert set(engine.window.block_tables) <= set(engine.running)
    pool_is_whole(engine.window.pool, [[*pages.values()] for pages in engine.window.block_tables.values()])


@splice("Engine.register")
def _(self, request, digest):
    self.window.register(request, len(request.digests), digest)
