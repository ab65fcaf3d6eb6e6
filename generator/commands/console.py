"""Provides the exit codes, options and output of all commands."""

from __future__ import annotations

import errno
import importlib
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from generator.errors import LoomError, nearest

COMMAND = re.compile(r'^@click\.command\("(\w+)".*?^def command\(.*?^    """(.*?)(?:"""|$)', re.MULTILINE | re.DOTALL)
EXIT_CODES = "Exit codes: 0 all is well; {one}; 2 a mistake in the sources, the command line or the files."


class NamedPath(click.Path):
    """A path that refuses "", the value of an unset variable."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("is empty: name a path", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(path_type=Path)


def complain(error: LoomError) -> None:
    """Prints an error."""
    click.echo(f"error: {error}", err=True)


def progress(number: int, total: int, text: str) -> None:
    """Prints a line for one of several packages; nothing if there is only one."""
    if total > 1:
        click.echo(f"[{number}/{total}] {text}", err=True)


def note(texts: Iterable[str]) -> None:
    """Prints notes."""
    for text in texts:
        click.echo(f"note: {text}", err=True)


class Status:
    """Says on a terminal, in a line that goes away, what runs and for how many seconds.

    Args:
        text: what runs first.
    """

    def __init__(self, text: str = ""):
        self._text, self._since = text, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Status:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident:
            self._thread.join()
            click.echo("\033[K", nl=False, err=True)

    def report(self, line: str) -> None:
        """Prints a line to stderr; on a terminal `loading ...` is what runs from now on."""
        is_step = self._thread.is_alive() and line.endswith("...")
        self._text, self._since = line if is_step else "", time.monotonic()
        if not is_step:
            click.echo(line, err=True)

    def _draw(self) -> None:
        while not self._ended.wait(0.5):
            if self._text and (seconds := time.monotonic() - self._since) > 1:
                # the cursor is left where the line begins, so that other output replaces it
                click.echo(f"{self._text} {seconds:.0f} s\033[K\r", nl=False, err=True)


def write_json(value: Any) -> None:
    """Prints a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


class LazyCommands(click.Group):
    """The modules of this folder that have a command, each imported when it runs.

    A mistake of the user is printed as `error: ...` and exits with 2, Ctrl-C exits with 130. An unknown command is an
    error that suggests the nearest one.
    """

    @cached_property
    def summaries(self) -> dict[str, str]:
        """Name of a command -> first line of its help text, read without importing the commands."""
        texts = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
        return {match[1]: match[2] for match in map(COMMAND.search, texts) if match}

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return sorted(self.summaries)

    def get_command(self, ctx: click.Context | None, name: str) -> click.Command | None:
        if not name.isidentifier() or not Path(__file__).with_name(f"{name}.py").is_file():
            return None
        return getattr(importlib.import_module(f"generator.commands.{name}"), "command", None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.summaries.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise LoomError(f"there is no command {args[0]!r}", remedy=nearest(args[0], self.summaries))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoomError as error:
            complain(error)
        except KeyboardInterrupt:  # click would exit with 1, which means differences here
            click.echo("stopped", err=True)
            ctx.exit(128 + signal.SIGINT)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `gen list | head`: click ends it quietly
                raise
            where = error.filename and str(error.filename)
            complain(LoomError(error.strerror or str(error), where, "Give another path, or make room."))
        ctx.exit(2)


def exit_codes(one: str, more: str = "") -> dict[str, Any]:
    """Returns the end of a command's help text: `more`, and the exit codes, of which `one` explains 1."""
    return {"epilog": f"{more}\n\n{EXIT_CODES.format(one=one)}".strip()}


NO_ONE = exit_codes("1 is not used")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
