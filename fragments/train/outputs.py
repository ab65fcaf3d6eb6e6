"""Outputs of a run that may fail without ending it."""

import contextlib
import sys
from collections.abc import Iterator

from generator.language import proceed, splice


@contextlib.contextmanager
def may_fail(what: str, failed: set[str]) -> Iterator[None]:
    """Lets the run go on if an output fails, and warns unless it has failed before."""
    try:
        yield
    except Exception as error:
        if what not in failed:
            print(f"warning: {what}: {error!r}: the run goes on without", file=sys.stderr)
        failed.add(what)


@splice("Monitor.parameters", before="tensorboard progress_bar")
def _(self):
    self.failed: set[str] = set()  # outputs that have failed


@splice("Monitor.line", "Monitor.close_file")
def _(self):
    with may_fail("metrics.jsonl", self.failed):
        proceed()
