"""Renders templates with jinja2, in a sandbox, with limits; an undefined name is an error at its line."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from generator.code.caching import cached
from generator.errors import LoomError, short
from generator.recipe.recipe import Recipe, find_inherited

_TEMPLATE = "<template>"  # jinja2's name of a template that is not a file
_MAX_LENGTH = 1_000_000  # of a text or list that a template multiplies or writes
_MAX_SECONDS = 10.0  # for one template: ours take milliseconds


class _Environment(ImmutableSandboxedEnvironment):
    """A sandbox in which products are limited too."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        lengths = [len(value) for value in (left, right) if isinstance(value, (str, list, tuple))]
        factors = [value for value in (left, right) if isinstance(value, int)]
        if operator == "**" or (lengths and factors and lengths[0] * factors[0] > _MAX_LENGTH):
            raise OverflowError(f"{short(repr(left))} {operator} {short(repr(right))} may be too long")
        return super().call_binop(context, operator, left, right)


_ENVIRONMENT = _Environment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


@cached
def _template(text: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(text)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in a block that takes longer; without signals (Windows, another thread) there is no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"it takes longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def render_text(template: str, path: str, recipe: Recipe, first: int = 1, **context: object) -> str:
    """Renders one template.

    Args:
        template: its text.
        path, first: its file, and the line on which it begins there, for errors.
        context: names besides those of every template.
    """
    names = {
        **recipe.settings,
        "preset": next((name for name in recipe.presets if name != "tiny"), "tiny"),  # for examples
        "source": find_inherited(recipe.lineage, "source"),
        "target_title": recipe.target_file.data.title,
        "title": find_inherited(recipe.lineage, "title"),
        **context,
    }
    try:
        with _time_limit(_MAX_SECONDS):
            text = _template(template).render(names)
        if len(text) > _MAX_LENGTH:
            raise OverflowError(f"it writes {len(text):,} characters, of {_MAX_LENGTH:,} at most")
        return text
    except jinja2.TemplateSyntaxError as error:
        where = f"{path}:{first + error.lineno - 1}"
        raise LoomError(f"not a valid template: {error.message}", where, "Fix the syntax of this line.") from None
    except jinja2.UndefinedError as error:
        message = f"the template uses an undefined name: {error.message}"
        where = f"{path}:{first + _failed_line(error) - 1}"
        raise LoomError(message, where, f"A template may use {', '.join(sorted(names))}.") from None
    except RecursionError:
        message = "the template is nested too deeply, or calls itself"
        raise LoomError(message, f"{path}:{first}", "Write it flatter.") from None
    except Exception as error:  # of any class, as a template is a program
        reason = f"{type(error).__name__}: {short(str(error), 300)}"
        where = f"{path}:{first + _failed_line(error) - 1}"
        raise LoomError(f"the template fails: {reason}", where, "Fix it.") from None


def _failed_line(error: BaseException) -> int:
    """Returns the line of the template in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == _TEMPLATE), 1)
