"""The command line: `gen COMMAND` runs `command` of generator/commands/COMMAND.py, which is then imported."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from io import TextIOWrapper

import click

from generator import __version__
from generator.commands.console import LazyCommands, complain
from generator.errors import LoomError


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="gen", message="%(prog)s %(version)s")
def gen() -> None:
    """Weaves fragments into plain training packages, and names the source of every line.

    Fragments, templates and targets come with gen. Those beside the gen.toml that is found upward from the working
    directory take part too. Packages are built in generated/, or in the folder that gen.toml names as `generated`.

    Exit codes: 0 all is well; 1 a command found something, as its own help says; 2 a mistake in the sources, the
    command line or the files; 130 stopped by Ctrl-C.
    """


def main() -> None:
    """Runs the console command `gen`."""
    gc.disable()  # a command ends soon, and syntax trees have no cycles to collect
    atexit.register(gc.freeze)  # or Python looks for some in all of them before it ends
    if not sys.flags.utf8_mode:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a source may have characters that the terminal cannot encode
                stream.reconfigure(errors="replace")
    try:
        os.getcwd()
    except FileNotFoundError:
        complain(LoomError("the working directory is gone", remedy="Change to one that is there."))
        sys.exit(2)
    gen(prog_name="gen")


if __name__ == "__main__":
    main()
