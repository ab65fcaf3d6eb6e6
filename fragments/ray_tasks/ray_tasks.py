"""Work on a Ray cluster.

Source: Moritz et al. 2018, arXiv 1712.05889 (Ray).
"""

import concurrent.futures
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import tyro

from generator.language import proceed, provide, requires, splice
from generator.language.roles import InputError

requires("data/prepare")

RETRIES = 10  # of a task whose worker, node or memory is lost; its own errors are not tried again


def import_ray() -> ModuleType:
    try:
        import ray

        return ray
    except ImportError:
        raise InputError("--on ray: needs Ray: pip install 'ray[default]', on all nodes") from None


def run_task(folder: str, function: Callable, *arguments: Any) -> Any:
    """Calls a function in a worker, in the folder of the program that asks for it."""
    with contextlib.suppress(OSError):  # not on this node: only absolute paths can be read here
        os.chdir(folder)
    return function(*arguments)


class RayExecutor(concurrent.futures.Executor):
    """Calls functions on the Ray cluster of RAY_ADDRESS, else on that of this machine, else on one started here."""

    def __init__(self):
        self.ray = import_ray()
        package = {"py_modules": [str(Path(__file__).parent)]}  # sent to each node
        try:
            self.ray.init(runtime_env=package, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"--on ray: {' '.join(str(error).split())}: see `ray status`, and RAY_ADDRESS") from None
        self.task = self.ray.remote(max_retries=RETRIES)(run_task)

    def submit(self, function: Callable, /, *arguments: Any) -> concurrent.futures.Future:
        future = concurrent.futures.Future()

        def end(done: concurrent.futures.Future) -> None:
            error = done.exception()
            if not error:
                future.set_result(done.result())
            elif isinstance(error, self.ray.exceptions.RayTaskError):
                future.set_exception(error.cause)
            else:
                problem = " ".join(str(error).split())
                future.set_exception(InputError(f"--on ray: {problem}: start it again, which goes on"))

        self.task.remote(os.getcwd(), function, *arguments).future().add_done_callback(end)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ray.shutdown()


@provide("prepare", optional=True)
def on() -> Annotated[Literal["ray"] | None, tyro.conf.arg(help="ray: tasks of a CPU each, not --workers.")]:
    return None


@splice("prepare.pool")
def _(on, pool):
    if on == "ray":
        pool = RayExecutor()
    else:
        proceed()
