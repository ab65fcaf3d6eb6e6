"""The parts of a fragment, as the weaver reads them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree
from generator.language.numbers import Number, read_number


@dataclass(frozen=True)
class Definition:
    """A top-level function, class or value. The block under `if __name__ == "__main__"` is called `__main__`."""

    name: str
    text: Traced  # whole lines, with the comments right above
    fragment: str


@dataclass(frozen=True)
class Field:
    """A member of `Config`: a field, a property or a method.

    Attributes:
        concern: the class that it stands in, such as ModelConfig, a base of Config; or Config itself.
    """

    name: str
    text: Traced
    fragment: str
    concern: str = "Config"

    @cached_property
    def statement(self) -> ast.stmt:
        (block,) = ast.parse("class _:\n" + self.text.text).body
        return block.body[0] if isinstance(block, ast.ClassDef) else block

    @cached_property
    def number(self) -> Number | None:
        """The type and the bounds of a number, None for other members."""
        return read_number(self.statement.annotation) if isinstance(self.statement, ast.AnnAssign) else None

    @property
    def kind(self) -> str:
        """The annotation of a field, without bounds, '' for other members."""
        if self.number:
            return self.number[0].__name__
        return ast.unparse(self.statement.annotation) if isinstance(self.statement, ast.AnnAssign) else ""

    @property
    def is_field(self) -> bool:
        """Returns whether a preset may give it: it is not a property or method."""
        return isinstance(self.statement, ast.AnnAssign)

    @property
    def is_required(self) -> bool:
        """Returns whether every preset must give it."""
        return isinstance(self.statement, ast.AnnAssign) and self.statement.value is None


@dataclass(frozen=True)
class Import:
    """`import module`, `import module as alias` or `from module import name [as alias]`."""

    module: str
    name: str  # '' for a plain import
    alias: str  # the name that the import binds
    origin: Origin


@dataclass(frozen=True)
class Splice:
    """Statements for a join point.

    Attributes:
        own: whether it is of a user's project, and not built in.
    """

    point: str
    reads: tuple[str, ...]
    body: Traced  # whole lines, at the indentation that they have in the fragment
    before: tuple[str, ...]
    after: tuple[str, ...]
    optional: bool
    fragment: str
    origin: Origin
    own: bool = False


@dataclass(frozen=True)
class Provider:
    """The source of a threaded value."""

    value: str
    site: str
    reads: tuple[str, ...]
    body: Traced  # the statements before the return, possibly none
    returned: Traced  # the whole lines of the return
    annotation: str  # of the value, '' where the fragment gives none
    optional: bool
    per_layer: bool
    fragment: str
    origin: Origin

    @cached_property
    def result(self) -> str:
        """The text of the returned expression."""
        source = TracedTree(self.returned)
        return source.code(source.statements[0].value)  # type: ignore[attr-defined]
