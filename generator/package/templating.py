"""Jinja2, set up so that an undefined name in a template is an error."""

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
from generator.recipe.recipe import Recipe

_TEMPLATE = "<template>"  # how jinja2 calls a template that is no file
_LONGEST = 1_000_000  # text or list that a template may multiply, or write
_SECONDS = 10.0  # that one may take: those here take milliseconds


class _Environment(ImmutableSandboxedEnvironment):
    """Templates may look at what they are given, and reach nothing else; nor do they multiply without end."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        length = [len(value) for value in (left, right) if isinstance(value, (str, list, tuple))]
        often = [value for value in (left, right) if isinstance(value, int)]
        if operator == "**" or (length and often and length[0] * often[0] > _LONGEST):
            raise OverflowError(f"{short(repr(left))} {operator} {short(repr(right))} may be too long")
        return super().call_binop(context, operator, left, right)


_ENVIRONMENT = _Environment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


@cached
def _template(text: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(text)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends what takes longer, by a TimeoutError; where signals cannot be had (Windows, another thread) nothing does."""
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
        template: the text.
        path: of the file that it stands in, and
        first: the line on which it begins there, for errors.
        context: names beside those that every template has.
    """
    names = {
        **recipe.settings,
        "preset": next((name for name in recipe.presets if name != "tiny"), "tiny"),  # for examples
        "source": recipe.said("source"),
        "target_title": recipe.target_file.data.title,
        "title": recipe.said("title"),
        **context,
    }
    try:
        with _limited(_SECONDS):
            made = _template(template).render(names)
        if len(made) > _LONGEST:
            raise OverflowError(f"it writes {len(made):,} characters, of {_LONGEST:,} at most")
        return made
    except jinja2.TemplateSyntaxError as error:
        where = f"{path}:{first + error.lineno - 1}"
        raise LoomError(f"not a valid template: {error.message}", where, "Fix the syntax of this line.") from None
    except jinja2.UndefinedError as error:
        message = f"the template uses a name that is not there: {error.message}"
        where = f"{path}:{first + _line(error) - 1}"
        raise LoomError(message, where, f"A template may use {', '.join(sorted(names))}.") from None
    except RecursionError:
        raise LoomError(
            "the template is nested too deeply, or calls itself", f"{path}:{first}", "Write it flatter."
        ) from None
    except Exception as error:  # a template is a program, and can fail in any way
        reason = f"{type(error).__name__}: {short(str(error), 300)}"
        raise LoomError(f"the template fails: {reason}", f"{path}:{first + _line(error) - 1}", "Fix it.") from None


def _line(error: BaseException) -> int:
    """Returns the line of the template at which it failed; jinja2 puts it in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == _TEMPLATE), 1)
