"""What goes wrong in a package that is traced or run is a fact about it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRATCH = "gen_diff_"  # begins the names of the folders that packages are traced in


class Unknown(Exception):
    """Something whose meaning is not known here."""


def guarded(job: Callable[[], Any]) -> Any:
    """What a job gives, or why it does not: {"undecided": reason}."""
    try:
        return job()
    except Unknown as error:
        return {"undecided": f"gen does not know {error}"}
    except Exception as error:  # a package may do whatever it likes
        lines = [x for x in traceback.extract_tb(error.__traceback__) if SCRATCH in x.filename]
        place = f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""
        text = str(error).strip().partition("\n")[0][:200]
        return {"undecided": f"{type(error).__name__}: {text}{place}"}
