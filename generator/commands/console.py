"""What every command prints alike."""

from __future__ import annotations

import json
from typing import Any

import click

from generator.errors import LoomError


def complain(error: LoomError) -> None:
    click.echo(f"error: {error}", err=True)


def progress(number: int, total: int, text: str) -> None:
    """A line for each package, where there is more than one."""
    if total > 1:
        click.echo(f"[{number}/{total}] {text}", err=True)


def write_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
