"""The memory of an engine that does not depend on the length of sequences."""

import jax

from generator.language import point, requires, splice
from generator.language.roles import InputError, computing, empty_state

requires("window_pages or engine_states")


@splice("pages_that_fit.fitting")
def _(left, pool, config, settings, mesh, fitting):
    with computing(mesh):
        fixed = jax.jit(lambda: empty_state(config, 0, settings.page_size)).lower().compile()
    of_sequences, in_all = (program.memory_analysis().output_size_in_bytes for program in (fixed, pool))
    if of_sequences > left:
        needed = (
            f"layers whose state has a fixed size need {of_sequences / 2**30:.1f} GiB of a device for so many sequences"
        )
        with point("pages_that_fit.too_many", settings, needed):
            raise InputError(f"--max-sequences {settings.max_sequences}: {needed}: lower it, or raise --mesh-tensor")
    fitting = int(64 * (left - of_sequences) / max(in_all - of_sequences, 1)) - 1  # one is never read
