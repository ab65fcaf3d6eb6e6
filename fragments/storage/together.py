"""What processes do together with storage: none goes on alone."""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from generator.language.roles import InputError, agree


class Damage(InputError):
    """How a checkpoint is not what was saved, or not finite."""


# how TensorStore's messages begin where storage fails, rather than what is stored there
FAILING = "UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "ABORTED"
DAMAGED = FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, LookupError, TypeError
WAITS = 1, 2, 4, 8  # seconds before what storage failed to give is read again
SEVERITIES = type(None), Damage, InputError, OSError, Exception  # of what a process met; the last one is the worst


def tell_apart(error: Exception) -> Exception:
    """OSError where storage failed, Damage where something is missing, cut or changed; others as they are."""
    while error.__cause__:  # Orbax raises plain Exceptions from those of TensorStore
        error = error.__cause__
    reason = " ".join(str(error).partition(" [")[0].split())
    if isinstance(error, ImportError):  # gs:// without gcsfs
        return InputError(f"{reason}: pip install {error.name}")
    if not isinstance(error, DAMAGED):
        return error
    failing = reason.startswith(FAILING) or ("os_error_code" in str(error) and not reason.startswith("NOT_FOUND"))
    return OSError(reason) if failing else Damage(f"is damaged: {reason}")


def together(do: Callable[[], Any], waits: Iterable[int] = ()) -> Any:
    """What `do` gives, or in all processes the error of the one that fared worst: none goes on alone.

    Where storage fails, all try again after each of the seconds `waits`.
    """
    for seconds in (*waits, 0):
        result = error = None
        try:
            result = do()
        except Exception as raised:
            error = tell_apart(raised)
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
