"""Weaves the definitions of a layer once for each kind of layer, and renames those that differ.

before: kinds local and full, of which only local has model/rope     after
    class Attention(nnx.Module): ...                                     class LocalAttention: ... rotates q and k
                                                                         class FullAttention: ... does not
    class Block(nnx.Module): ... Attention(...)                          class LocalBlock: ... LocalAttention(...)
                                                                         class FullBlock: ... FullAttention(...)

Definitions that are the same for every kind stay one definition. No fragment mentions kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from generator.code.bindings import free_names
from generator.code.edits import Edits
from generator.code.renaming import rename
from generator.code.traced import Traced
from generator.code.tree import TracedTree
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Provider
from generator.recipe.pattern import Kind
from generator.recipe.recipe import Recipe
from generator.weave.adapt import Need

Woven = tuple[dict[str, Definition], list[Need]]
Weave = Callable[[list[Fragment], frozenset[str]], Woven]
ROOT = "Block"  # the class of a layer


@dataclass(frozen=True)
class WovenKinds:
    """Woven definitions, needs and providers, and kind of layer -> the name of its class."""

    definitions: dict[str, Definition]
    needs: list[Need]
    providers: list[Provider]
    blocks: dict[str, str]


def specialise(recipe: Recipe, providers: list[Provider], weave: Weave) -> WovenKinds:
    """Weaves a recipe whose layers are of several kinds.

    Args:
        weave: weaves fragments, without the definitions of these names.
    """
    kinds = list(recipe.pattern.kinds.values())
    special = {name for kind in kinds for name in kind.fragments}
    if not special:
        return WovenKinds(
            *weave(list(recipe.fragments), frozenset()), providers, dict.fromkeys(recipe.pattern.kinds, ROOT)
        )
    each = {kind.name: weave(_fragments_of_kind(recipe, kind, special), frozenset()) for kind in kinds}
    scopes = {kind: _reachable_from_block(definitions) for kind, (definitions, _) in each.items()}
    inside = frozenset(key for scope in scopes.values() for key in scope)
    definitions, needs = weave(list(recipe.fragments), inside)
    versions = {key: {kind: each[kind][0][key] for kind in scopes if key in scopes[kind]} for key in sorted(inside)}
    names = _specialised_names(versions, [kind.name for kind in kinds])
    sources = {key: key for key in definitions}  # key -> the key of which it is a version
    for key, by_kind in versions.items():
        for kind, definition in by_kind.items():
            new = names[kind].get(key, key)
            sources[new] = key
            definitions[new] = replace(definition, name=new, text=_rename_definitions(definition.text, names[kind]))
    order = list(dict.fromkeys(key for woven, _ in each.values() for key in woven))  # that of their fragments
    definitions = {new: definitions[new] for new in sorted(sources, key=lambda new: order.index(sources[new]))}

    def function_of_kind(function: str, kind: str) -> str:
        """Returns the id of a function in layers of this kind."""
        host, dot, method = function.partition(".")
        return f"{names[kind].get(host, host)}{dot}{method}"

    for kind, (_, unmoved) in each.items():
        own = [need for need in unmoved if need.function.split(".")[0] in inside]
        moved = [replace(need, function=function_of_kind(need.function, kind)) for need in own]
        needs = [*dict.fromkeys([*needs, *moved])]
    sites = [
        replace(provider, site=site)
        for provider in providers
        for site in dict.fromkeys(
            function_of_kind(provider.site, kind.name) for kind in recipe.pattern.kinds_with(provider.fragment)
        )
    ]
    blocks = {kind: names[kind].get(ROOT, ROOT) for kind in recipe.pattern.kinds}
    return WovenKinds(definitions, needs, sites, blocks)


def _fragments_of_kind(recipe: Recipe, kind: Kind, special: set[str]) -> list[Fragment]:
    return [f for f in recipe.fragments if f.name not in special or f.name in kind.fragments]


def _reachable_from_block(definitions: dict[str, Definition]) -> list[str]:
    """Returns the keys that are reachable from the class of a layer, its own too."""
    reached, queue = [], [ROOT] if ROOT in definitions else []
    while queue:
        key = queue.pop()
        if key not in reached:
            reached.append(key)
            queue += [name for name in free_names(definitions[key].text.text) if name in definitions]
    return reached


def _specialised_names(versions: dict[str, dict[str, Definition]], kinds: list[str]) -> dict[str, dict[str, str]]:
    """Returns kind of layer -> definition -> its name, for definitions that differ or use one that differs.

    Kinds whose versions are the same, and use the same, share one that is named after the first of them.
    """
    texts = {key: {kind: version.text.text for kind, version in by_kind.items()} for key, by_kind in versions.items()}
    used = {key: {kind: free_names(text) for kind, text in by_kind.items()} for key, by_kind in texts.items()}
    before: dict[str, dict[str, str]] = {}
    leaders = {key: dict.fromkeys(by_kind, "") for key, by_kind in texts.items()}
    while leaders != before:
        before, leaders = leaders, {}
        for key, by_kind in texts.items():
            first: dict[tuple, str] = {}
            leaders[key] = {
                kind: first.setdefault(
                    (text, *(before[name][kind] for name in used[key][kind] if name in before)), kind
                )
                for kind, text in by_kind.items()
            }
    names: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    for key, by_kind in leaders.items():
        for kind, leader in by_kind.items():
            if len(set(by_kind.values())) > 1:
                names[kind][key] = _name_for_kind(key, leader)
    return names


def _name_for_kind(name: str, kind: str) -> str:
    """Returns `LocalBlock` for `Block`, `local_mask` for `mask`."""
    if name[0].isupper():
        return "".join(part.capitalize() for part in kind.split("_")) + name
    return f"{kind}_{name}"


def _rename_definitions(text: Traced, renamed: dict[str, str]) -> Traced:
    """Returns a text with some definitions renamed, itself too."""
    if not any(name in text.text for name in renamed):
        return text
    edits = Edits(TracedTree(text))
    rename(edits, renamed.get)
    return edits.made()
