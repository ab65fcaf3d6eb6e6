"""Names that some selected fragment defines: `from generator.language.roles import attend, Norm`.

A role is only a name, so any name can be imported from this module. The weaver links it to its one definition among the
selected fragments, and it is an error if there is none or more than one.
"""

from collections.abc import Iterator
from typing import Any


class _Role:
    """A definition that is chosen while weaving: a function, a class or a table."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Role()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Role()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()  # a role as the base of a class

    def __iter__(self) -> Iterator[str]:
        return iter(("role",))

    def __getitem__(self, key: Any) -> Any:
        return _Role()

    def __mul__(self, other: Any) -> Any:
        return _Role()

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Role()
