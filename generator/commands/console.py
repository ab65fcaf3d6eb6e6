"""What every command does and prints alike."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path
from typing import Any

import click

from generator.errors import LoomError, nearest

EXIT_CODES = "Exit codes: 0 all is well; {one}; 2 a mistake in the sources, the command line or the files."


class NamedPath(click.Path):
    """A path that is not empty, as that of a variable that nobody has set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("is empty: name a path", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(path_type=Path)


def complain(error: LoomError) -> None:
    click.echo(f"error: {error}", err=True)


def progress(number: int, total: int, text: str) -> None:
    """A line for each package, where there is more than one."""
    if total > 1:
        click.echo(f"[{number}/{total}] {text}", err=True)


def write_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


class Commands(click.Group):
    """Turns a user's mistake into `error: ...` and exit code 2, and Ctrl-C into 130.

    For an unknown command it names the nearest.
    """

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise LoomError(f"there is no command {args[0]!r}", remedy=nearest(args[0], self.commands))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoomError as error:
            complain(error)
        except KeyboardInterrupt:  # of which click makes 1, which means differences here
            click.echo("stopped", err=True)
            ctx.exit(128 + signal.SIGINT)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `gen list | head`: click ends it quietly
                raise
            complain(LoomError(error.strerror or str(error), error.filename and str(error.filename)))
        ctx.exit(2)


def exit_codes(one: str) -> dict[str, Any]:
    """The end of a command's help; 1 means what is given here."""
    return {"epilog": EXIT_CODES.format(one=one)}


NO_ONE = exit_codes("1 is not used")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
