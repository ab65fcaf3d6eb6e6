"""Storage operations that all processes do together: none goes on alone."""

import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from generator.language import splice
from generator.language.roles import InputError


def require_equal(what: str, value: object) -> None:
    """Raises InputError in all processes if one was started with another value."""
    digests = multihost_utils.process_allgather(np.uint32(zlib.crc32(repr(value).encode())))
    if np.unique(digests).size > 1:
        raise InputError(f"the processes of the job differ in their {what}: start all of them with the same")


def agree(value: int) -> int:
    """Returns the maximum over all processes, after waiting for all of them."""
    return int(multihost_utils.process_allgather(np.int32(value)).max())


class Damage(InputError):
    """A checkpoint that is not what was saved, or not finite; says how."""


# prefixes of TensorStore's messages when storage fails, rather than what is stored there
FAILING = "UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "ABORTED"
WAITS = 1, 2, 4, 8  # seconds before each retry when storage fails
SEVERITIES = type(None), Damage, InputError, OSError, Exception  # of errors; the last is the worst


def classify_error(error: Exception) -> Exception:
    """Returns OSError if TensorStore says that storage failed, InputError if a package is missing, else `error`."""
    while error.__cause__:  # Orbax raises plain Exceptions from TensorStore's
        error = error.__cause__
    reason = " ".join(str(error).partition(" [")[0].split())
    if isinstance(error, ImportError):  # gs:// without gcsfs
        return InputError(f"{reason}: pip install {error.name}")
    failing = reason.startswith(FAILING) or ("os_error_code" in str(error) and not reason.startswith("NOT_FOUND"))
    return OSError(reason) if failing and isinstance(error, ValueError) else error


def on_all_processes(do: Callable[[], Any], waits: Iterable[int] = ()) -> Any:
    """Returns `do()`, or raises the worst error of any process in all of them: none goes on alone.

    If storage fails, all try again after each of `waits`, in seconds.
    """
    for seconds in (*waits, 0):
        result = error = None
        try:
            result = do()
        except Exception as raised:
            error = classify_error(raised)
        severity = next(i for i, kind in enumerate(SEVERITIES) if isinstance(error, kind))
        if (worst := agree(severity)) > severity:
            error = SEVERITIES[worst]("fails in another process, which says why")
        if not isinstance(error, OSError) or not seconds:
            break
        print(f"warning: {error}: trying again in {seconds} s", file=sys.stderr)
        time.sleep(seconds)
    if error:
        raise error
    return result


@splice("train.start", after="goodput")
def _(config):
    require_equal("settings", config)
