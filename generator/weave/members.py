"""What stands for a layer or a group of layers in a fragment, and its members: `layer.Block`, `group.count`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from generator.code import syntax
from generator.code.names import in_place
from generator.code.scopes import scopes_of
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced
from generator.errors import LoomError


def standing_for(name: str, source: Source) -> set[cst.CSTNode]:
    """Where a text reads a name that it does not bind itself."""
    scopes = scopes_of(source.module)
    return {node for node, scope in scopes.occurrences if node.value == name and scope.binder(name) is None}


def member_edits(
    source: Source, nodes: Collection[cst.CSTNode], members: Mapping[str, str], advice: str = ""
) -> list[Edit]:
    """Edits that put expressions in place of the members of what stands for a layer or a group.

    Args:
        nodes: what stands for it.
        members: name -> expression.
        advice: what gives a member that is missing, with {} for its name.
    """
    edits: list[Edit] = []

    def visit(node: cst.CSTNode, parent: cst.CSTNode | None) -> None:
        owner = node.value if isinstance(node, cst.Attribute) and node.value in nodes else None
        name = node.attr.value if isinstance(node, cst.Attribute) and owner else ""
        if name in members:
            start, end = source.span(node)
            new = in_place(members[name], parent)
            edits.append(Edit(start, end, Traced.insert(new, source.traced.origin_at(start))))
        elif owner or node in nodes:
            known = ", ".join(f"{syntax.dotted(owner or node)}.{member}" for member in members)
            if advice and name:
                message = f"{syntax.dotted(node)} is read here, and some kind of layer is made without {name!r}"
                raise LoomError(message, source.where(node), advice.format(name))
            remedy = f"Say one of {known}." if known else "Say what layers are made with, as layer.window."
            raise LoomError(f"{syntax.dotted(node)} cannot be read here", source.where(node), remedy)
        else:
            for child in syntax.children(node):
                visit(child, node)

    visit(source.module, None)
    return edits
