"""The command line: `gen COMMAND` runs `command` of generator/commands/COMMAND.py, which is then imported."""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper

import click

from generator import __version__
from generator.commands.console import LazyCommands, complain
from generator.errors import LoomError

SUMMARIES = {
    "build": "Build the package of an architecture for a target.",
    "check": "Check that every package is what a build makes now.",
    "cost": "Say what a program costs by fragment.",
    "coverage": "Report the fragment lines that nothing executed in any package.",
    "diff": "Compare two packages, or show what a build would change, or what a change means.",
    "explain": "Say which fragment a generated line came from.",
    "list": "List the architectures, targets, fragments, parts and packages.",
    "loc": "Count source lines and the lines that they make.",
    "merge": "Finish a merge of git: weave the packages from the merged fragments.",
    "new": "Write an architecture file for a checkpoint, from its config.json.",
    "own": "Declare that a package is edited by hand from now on.",
    "parity": "Compare a package with the model of transformers that it stands for.",
    "points": "List the join points, with what a splice sees there and who splices.",
    "pull": "Carry the edits of a package back to the fragments that its lines came from.",
    "trace": "Write a traceback with the fragment line below each frame.",
    "update": "Merge what the fragments bring into a package that people own or edited.",
    "view": "Write a site that shows the packages.",
}


@click.group(
    cls=LazyCommands,
    summaries=SUMMARIES,
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
