"""A server that is ready with a few shapes of steps, and compiles the others meanwhile."""

import os
import sys
import threading
from collections.abc import Iterator

from generator.language import excludes, point, requires, splice
from generator.language.roles import Device, EngineThread, StepShapes, computing, run, write

requires("engine_thread", "serve/serve")
excludes("longrope")  # whose steps take and return more


def begin_with_few(device: Device) -> Iterator[str]:
    """Restricts steps to few shapes, with more padding. Returns an iterator that compiles all, for another thread.

    The iterator yields a description of each shape. At its end, steps have all shapes again.
    """
    shapes = device.shapes
    steps = [*device.steps()]
    with point("begin_with_few.few", device, steps, shapes):
        rows = sorted({shapes.rows[0], shapes.rows[-1]})
        longest = max(shapes.chunks)
        device.shapes = StepShapes(rows, {longest: shapes.chunks[longest]}, shapes.widths[-1:])

    def compile_all() -> Iterator[str]:
        for step, length, score_all, text in steps:
            with computing(device.mesh):
                lowered = run.lower(device.model, device.state, device.slots, step, length, score_all)
                lowered.compile()  # for later calls of `run`
                write.lower(device.state, lowered.out_info[1], step, length).compile()
            yield text
        device.shapes = shapes  # in one assignment, as the engine's thread reads them

    return compile_all()


def compile_others(thread: EngineThread, shapes: Iterator[str]) -> None:
    for shape in shapes:
        print(f"compiled {shape}", flush=True)
        if thread.ending:
            return


@splice("EngineThread.made")
def _(self):
    self.compiling: threading.Thread | None = None  # compiles more shapes of steps


@splice("EngineThread.start")
def _(self):
    others = begin_with_few(self.engine.device)


@splice("EngineThread.ready")
def _(self, others):
    self.compiling = threading.Thread(target=compile_others, args=(self, others), daemon=True)
    self.compiling.start()


@splice("serve.ended", after="serve_processes")
def _(thread):
    if not thread.is_alive() and thread.compiling and thread.compiling.is_alive():  # which cannot be interrupted
        sys.stdout.flush()
        os._exit(int(thread.failed))
