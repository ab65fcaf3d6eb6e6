"""Weaves the definitions of a layer once for each kind of layer, and gives those that differ names of their own.

before: kinds local and full, of which only local has model/rope     after
    class Attention(nnx.Module): ...                                     class LocalAttention: ... rotates q and k
                                                                         class FullAttention: ... does not
    class Block(nnx.Module): ... Attention(...)                          class LocalBlock: ... LocalAttention(...)
                                                                         class FullBlock: ... FullAttention(...)

What comes out the same for every kind stays one definition. Fragments know nothing of kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import libcst as cst

from generator import syntax
from generator.fragment import Fragment
from generator.layers import Kind
from generator.parts import Definition, Provider
from generator.recipe import Recipe
from generator.syntax import Source
from generator.traced import Edit, Traced
from generator.weave.adapt import Need
from generator.weave.link import free_names

Woven = tuple[dict[str, Definition], list[Need]]
Weave = Callable[[list[Fragment], frozenset[str]], Woven]
ROOT = "Block"  # the class of a layer


@dataclass(frozen=True)
class Specialised:
    """What was woven: definitions, needs and providers, and kind of layer -> the name of its class."""

    definitions: dict[str, Definition]
    needs: list[Need]
    providers: list[Provider]
    blocks: dict[str, str]


def specialise(recipe: Recipe, providers: list[Provider], weave: Weave) -> Specialised:
    """Weaves a recipe whose layers are of several kinds.

    Args:
        weave: weaves fragments, without the definitions of these names.
    """
    kinds = [kind for kind in recipe.pattern.kinds.values()]
    special = {name for kind in kinds for name in kind.fragments}
    if not special:
        return Specialised(
            *weave(list(recipe.fragments), frozenset()), providers, dict.fromkeys(recipe.pattern.kinds, ROOT)
        )
    each = {kind.name: weave(_of_kind(recipe, kind, special), frozenset()) for kind in kinds}
    scopes = {kind: _reached(definitions) for kind, (definitions, _) in each.items()}
    inside = frozenset(key for scope in scopes.values() for key in scope)
    definitions, needs = weave(list(recipe.fragments), inside)
    versions = {key: {kind: each[kind][0][key] for kind in scopes if key in scopes[kind]} for key in sorted(inside)}
    apart = _apart(versions)
    sources = {key: key for key in definitions}  # what a definition is a version of
    for key, by_kind in versions.items():
        for kind, definition in by_kind.items():
            renamed = {name: _name(name, kind) for name in apart}
            new = renamed.get(key, key)
            sources[new] = key
            definitions[new] = replace(definition, name=new, text=_renamed(definition.text, renamed))
    written = list(dict.fromkeys(key for made, _ in each.values() for key in made))  # in the order of their fragments
    definitions = {new: definitions[new] for new in sorted(sources, key=lambda new: written.index(sources[new]))}

    def places(function: str, kind: str) -> str:
        """Where a function of a layer of this kind is."""
        host, dot, method = function.partition(".")
        return f"{_name(host, kind) if host in apart else host}{dot}{method}"

    for kind, (_, wanted) in each.items():
        moved = [replace(n, function=places(n.function, kind)) for n in wanted if n.function.split(".")[0] in inside]
        needs += [need for need in moved if need not in needs]
    sites = [
        replace(provider, site=site)
        for provider in providers
        for site in dict.fromkeys(places(provider.site, kind.name) for kind in recipe.pattern.having(provider.fragment))
    ]
    blocks = {kind: _name(ROOT, kind) if ROOT in apart else ROOT for kind in recipe.pattern.kinds}
    return Specialised(definitions, needs, sites, blocks)


def _of_kind(recipe: Recipe, kind: Kind, special: set[str]) -> list[Fragment]:
    return [f for f in recipe.fragments if f.name not in special or f.name in kind.fragments]


def _reached(definitions: dict[str, Definition]) -> list[str]:
    """What the class of a layer uses, itself included."""
    found, queue = [], [ROOT] if ROOT in definitions else []
    while queue:
        key = queue.pop()
        if key not in found:
            found.append(key)
            queue += [name for name in free_names(definitions[key].text.text) if name in definitions]
    return found


def _apart(versions: dict[str, dict[str, Definition]]) -> set[str]:
    """The names that come out differently, or use one that does; a name that one kind alone has can stay."""
    several = {key: list(by_kind.values()) for key, by_kind in versions.items() if len(by_kind) > 1}
    apart = {key for key, made in several.items() if len({definition.text.text for definition in made}) > 1}
    while more := {
        key
        for key, made in several.items()
        if key not in apart and apart & {name for definition in made for name in free_names(definition.text.text)}
    }:
        apart |= more
    return apart


def _name(name: str, kind: str) -> str:
    """`LocalBlock` of `Block`, `local_mask` of `mask`."""
    if name[0].isupper():
        return "".join(part.capitalize() for part in kind.split("_")) + name
    return f"{kind}_{name}"


def _renamed(text: Traced, renamed: dict[str, str]) -> Traced:
    """A definition with other names in place of some, its own too; attributes and keywords keep theirs."""
    if not any(name in text.text for name in renamed):
        return text
    source = Source(text)
    edits = []

    def visit(node: cst.CSTNode) -> None:
        for child in syntax.children(node):
            word = (isinstance(node, cst.Attribute) and child is node.attr) or (
                isinstance(node, cst.Arg) and child is node.keyword
            )
            if isinstance(child, cst.Name) and child.value in renamed and not word:
                start, end = source.span(child)
                new = Traced.insert(renamed[child.value], source.traced.origin_at(start))
                edits.append(Edit(start, end, new))
            visit(child)

    visit(source.module)
    return source.traced.edited(edits)
