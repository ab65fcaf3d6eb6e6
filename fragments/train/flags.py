"""Flags of the compiler, beside those of the environment."""

import os
import sys

from generator.language import point
from generator.language.roles import FLAGS_VARIABLE


def set_flags(flags: str) -> None:
    """Adds flags to those of the environment, which win; the compiler reads them when JAX first asks for devices."""
    theirs = os.environ.get(FLAGS_VARIABLE, "")
    names = {flag.partition("=")[0] for flag in theirs.split()}
    ours = [flag for flag in flags.split() if flag.partition("=")[0] not in names]
    if left_out := [flag for flag in flags.split() if flag not in (*ours, *theirs.split())]:
        print(f"warning: {' '.join(left_out)} is not set: {FLAGS_VARIABLE} has another value", file=sys.stderr)
    os.environ[FLAGS_VARIABLE] = " ".join([*ours, theirs]).strip()
    point("set_flags.more")
