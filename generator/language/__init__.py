"""The language of fragments.

The weaver reads these words from the source, and none of them does anything when a fragment is imported. They exist so
that a fragment is ordinary Python, which can be imported, type-checked and stepped through.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

Function = TypeVar("Function")


def point(name: str, *shown: Any, **named: Any) -> AbstractContextManager[None]:
    """Marks a join point in a host.

    As a statement, it is replaced by splices. As `with point(...):`, a splice replaces the statements inside, or wraps
    them with `proceed()`; without a splice they stay.

    Args:
        name: `Host.place`, unique among the selected fragments.
        shown: local names that a splice may read and rebind.
        named: expressions that a splice may read by the keyword.
    """
    return nullcontext()


def proceed() -> None:
    """Runs the statements of the host, in a splice at a `with point(...):`."""


def splice(*names: str, before: str = "", after: str = "", optional: bool = False) -> Any:
    """Puts the body of the decorated function at each join point in `names`.

    The parameters are the names that the body reads or rebinds: those that the point shows, `self` in a method, and
    threaded values. Its other names are its own.

    Args:
        before, after: names of fragments (`rope`), separated by blanks, whose splices at this point come later or
            earlier.
        optional: leave the splice out if no selected fragment has the point.
    """
    return lambda function: function


def provide(site: str, *, optional: bool = False, per_layer: bool = False) -> Any:
    """Declares the source of a threaded value: the decorated function has its name and returns it.

    Args:
        site: the function (`loss`) or method (`Decoder.hidden`) that has the inputs of the value. The parameters of the
            decorated function are names of the site: its parameters, `config`, other threaded values.
        optional: callers of the site may pass the value; the returned expression is for those that do not.
        per_layer: the value has one slice for each layer, along its leading axis; a scan over layers takes it apart.
    """
    return lambda function: function


def emit(value: Any) -> None:
    """Carries a value outward, from here to a splice or `receive` in a calling function."""


def receive(value: Any) -> None:
    """Takes a value that a call above this line carried outward; a scan stacks it."""


def threaded() -> Any:
    """Asks for a threaded value, as the default of a parameter: calls leave it out, and the weaver passes it."""


def setting(name: str) -> Any:
    """Becomes a literal of the architecture or the target; `if setting(...)` is decided while weaving."""


def requires(*fragments: str) -> None:
    """Names fragments that this one needs; of `"rope or alibi"`, one is enough."""


def excludes(*fragments: str) -> None:
    """Names fragments that cannot be in one package with this one."""


def alike(function: str, site: str) -> None:
    """Provides the values of `site` at `function` too, except those that callers may pass."""


class Layers:
    """The layers of a model; the architecture decides their kinds and their number.

    Attributes:
        groups: in `for group in layers.groups:`, the layers that are scanned together. `group.Block` is their class,
            `group.count` their number, `group.stack` the attribute that stacks them. A parameter annotated
            `layer: group.Block` is called like layers of its kind.
        period: in `for layer in layers.period:`, each layer of the pattern of a group. `layer.Block` is its class,
            `layer.module` its attribute.
        last: one layer like the last, `layers.last.Block` and `layers.last.module`.
        count: the number of layers that have this fragment.
        scanned: the same, without `further` layers.
        numbers: the numbers of the layers that have this fragment, in order.
        stacks: the path of each stack of layers -> the numbers of its layers, a dict of ranges.
    """

    groups: Any = ()
    period: Any = ()
    last: Any = None
    count: Any = 0
    scanned: Any = 0
    numbers: Any = ()
    stacks: Any = None

    def sum(self, value: Any) -> Any:
        """Becomes the sum of `lambda layer: ...` over the layers that have this fragment.

        `layer.window` is the argument `window` that layers of its kind are made with.
        """

    def stacked(self, value: Any) -> Any:
        """Becomes `lambda group: ...`, of `group.count` layers, for each group, in the structure that scans take apart.

        `group.numbers` is a range of the numbers of those layers.
        `group.window` is the argument `window` that layers of its kind are made with.
        """

    def further(self, stack: str, count: str) -> None:
        """Declares, at the top of a fragment, layers after the last, which a plain pass of the model leaves out.

        Args:
            stack: the path of their stack; each holds a layer of the kind of the last one.
            count: their number, an expression over `config`.
        """


layers = Layers()
