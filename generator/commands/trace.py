"""`gen trace`: names the fragment line below each frame of a traceback."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.console import NO_ONE, PATH, note
from generator.disk.project import Project
from generator.running.trace import annotate_traceback
from generator.running.woven_files import WovenFiles


@click.command("trace", **NO_ONE)
@click.argument("file", metavar="[FILE]", type=PATH, required=False)
def command(file: Path | None) -> None:
    """Write a traceback with the fragment line below each frame.

    It reads FILE or the standard input, and keeps every byte of it, also of the log around a traceback. It knows
    tracebacks of Python, those that JAX filters, and those of pytest.
    """
    files = WovenFiles(Project.find())
    with click.open_file(str(file or "-"), "rb") as lines, click.open_file("-", "wb") as out:
        for line in annotate_traceback(lines, files):
            out.write(line)
            out.flush()  # a log may go on for days
    note(map(str, files.problems.values()))
