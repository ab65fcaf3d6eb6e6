"""`gen trace`: names the fragment line below each frame of a traceback."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.console import NO_ONE, PATH, note
from generator.disk.project import Project
from generator.running.origins import Origins
from generator.running.trace import annotate_traceback


@click.command("trace", **NO_ONE)
@click.argument("file", metavar="[FILE]", type=PATH, required=False)
def command(file: Path | None) -> None:
    """Write a traceback with the fragment line below each frame.

    It is read from FILE or from the standard input, with the log around it, and every byte of it stays. Known are
    tracebacks of Python, those that JAX filters, and those of pytest.
    """
    origins = Origins(Project.find())
    with click.open_file(str(file or "-"), "rb") as lines, click.open_file("-", "wb") as out:
        for line in annotate_traceback(lines, origins):
            out.write(line)
            out.flush()  # a log may go on for days
    note(map(str, origins.problems.values()))
