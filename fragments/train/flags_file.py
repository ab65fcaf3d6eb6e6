"""The compiler's flags of a run, in its directory."""

import os

import jax

from generator.language import proceed, splice
from generator.language.roles import FLAGS_VARIABLE


@splice("train.monitor")
def _(directory):
    proceed()
    if jax.process_index() == 0:
        (directory / "flags.txt").write_text(os.environ.get(FLAGS_VARIABLE, ""))
