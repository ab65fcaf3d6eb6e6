"""The words in which a fragment speaks to the weaver.

None of them does anything when a fragment is imported: they are read from the source. They exist so that a fragment
is ordinary Python that imports, type-checks and can be stepped through.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

Function = TypeVar("Function")


def point(name: str, *shown: Any, **named: Any) -> AbstractContextManager[None]:
    """Marks a join point in a host.

    As a statement, splices are put in its place. As `with point(...):`, a splice replaces the statements inside, or
    wraps them where it says `proceed()`; without a splice they stay as they are.

    Args:
        name: `Host.place`, unique among the selected fragments.
        shown: local names that a splice may read and rebind.
        named: expressions that a splice may read by the keyword.
    """
    return nullcontext()


def proceed() -> None:
    """In a splice at a `with point(...):`, stands for the statements that the host has there."""


def splice(*names: str, before: str = "", after: str = "", optional: bool = False) -> Any:
    """Puts the body of the decorated function at the join point `name`, or at several.

    The parameters are the names that the body reads or rebinds: those that the point shows, `self` in a method, and
    values that are threaded from elsewhere. Its other names are its own.

    Args:
        before, after: names of fragments (`rope`), separated by blanks, whose splices at this point come later or
            earlier.
        optional: leave the splice out where no selected fragment has the point.
    """
    return lambda function: function


def provide(site: str, *, optional: bool = False, per_layer: bool = False) -> Any:
    """Says where a threaded value comes from: the decorated function is named like the value and returns it.

    Args:
        site: the function (`loss`) or method (`Decoder.hidden`) that has what the value is made from. The parameters
            of the decorated function are names that the site has: its parameters, `config`, other threaded values.
        optional: callers of the site may hand the value in; the returned expression is for those that do not.
        per_layer: the value has one slice for each layer, along its leading axis; a scan over layers takes it apart.
    """
    return lambda function: function


def emit(value: Any) -> None:
    """Carries a value outward, from here to whoever reads it further out (a splice there, or `receive`)."""


def receive(value: Any) -> None:
    """Takes a value that a call before this line carried outward; one that came through a scan is stacked."""


def threaded() -> Any:
    """As the default of a parameter, asks for a threaded value: calls leave it out, and the weaver passes it."""


def setting(name: str) -> Any:
    """A literal from the architecture or the target, filled in while weaving; `if setting(...)` is decided then."""


def requires(*fragments: str) -> None:
    """The fragments without which this one makes no sense; of `"rope or alibi"`, one is enough."""


def excludes(*fragments: str) -> None:
    """The fragments that cannot be in one package with this one."""


def alike(function: str, site: str) -> None:
    """Says that what is provided at `site`, and cannot be handed in there, is provided at `function` too."""


class Layers:
    """The layers of a model, whatever their kinds and their number: the architecture says both.

    Attributes:
        groups: in `for group in layers.groups:`, the layers that are scanned together: `group.Block` is the class of
            one, `group.count` how many there are, `group.stack` where they are kept, stacked. What is annotated
            `layer: group.Block` is called as layers of its kind are.
        period: in `for layer in layers.period:`, each layer of the pattern of a group: `layer.Block` is its class,
            `layer.module` where it is kept.
        last: one layer like the last, `layers.last.Block` and `layers.last.module`.
        count: how many layers have this fragment.
        numbers: the numbers of the layers that have this fragment, in order.
        stacks: the path of each stack of layers -> the numbers of its layers, a dict of ranges.
    """

    groups: Any = ()
    period: Any = ()
    last: Any = None
    count: Any = 0
    numbers: Any = ()
    stacks: Any = None

    def sum(self, value: Any) -> Any:
        """The sum of `lambda layer: ...` over the layers that have this fragment.

        `layer.window` is what layers of its kind are made with as `window`.
        """

    def stacked(self, value: Any) -> Any:
        """`lambda group: ...`, of `group.count` layers, for each group, in the structure that scans take apart.

        `group.window` is what layers of its kind are made with as `window`.
        """

    def further(self, stack: str, count: str) -> None:
        """Says at the top of a fragment that it has layers after the last, which a plain pass of the model leaves out.

        Args:
            stack: the path of what it stacks; each holds a layer of the kind of the last one.
            count: how many there are, an expression over `config`.
        """


layers = Layers()
