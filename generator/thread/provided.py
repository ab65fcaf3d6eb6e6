"""What providers make at their sites: statements there, or an expression where it is passed on."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter

from generator.code.bindings import names_in, scopes_of
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, TracedTree, dotted_name, reindent, walk
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call, Function
from generator.thread.names import parts_of, root, targets_of
from generator.thread.plan import Plan
from generator.weave.adapt import replace_names

_PATH = re.compile(r"[\w.]+(\[[\w\"']+\])*")  # a name, an attribute or an item: as short as a name of its own


def provider_order(plan: Plan, function: Function) -> list[str]:
    """The values that providers make in a function; those that a provider reads come before its own."""
    names = plan.provided(function.id)
    reads = {name: set(plan.values[name].providers[function.id].reads) & set(names) - {name} for name in names}
    try:
        return [*TopologicalSorter(reads).static_order()]
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        origin = plan.values[circle[0]].origin
        raise LoomError(f"{' and '.join(circle)} are made from each other", str(origin), "Break the circle.") from None


def made(plan: Plan, function: Function, provider: Provider, indent: str) -> Traced:
    """`name = result`, or `if name is None: name = result` where callers may hand it in."""
    name, cause = provider.value, provider.origin
    inner = indent + ("    " if provider.optional else "")
    parts = [Traced.insert(f"{indent}if {name} is None:\n", cause)] if provider.optional else []
    if provider.body.text:
        parts.append(reindent(_in_names_of(plan, function, provider, provider.body), len(inner)))
    parts += [Traced.insert(f"{inner}{name} =", cause), _result(plan, function, provider), Traced.insert("\n", cause)]
    return Traced.join(parts)


def _result(plan: Plan, function: Function, provider: Provider) -> Traced:
    return _in_names_of(plan, function, provider, Traced.insert(" ", provider.origin) + provider.result)


def _in_names_of(plan: Plan, function: Function, provider: Provider, text: Traced) -> Traced:
    """The provider's text with `config` read from where the site has it, and every name checked."""
    known = {*function.parameter_names, *plan.required(function.id), *plan.optional(function.id)}
    known |= set(plan.provided(function.id)) | {"self"}
    assigned = plan.graph.classes.assigned.get("config", ()) if function.class_name else ()
    configs = [target for key, target, _ in assigned if key == function.key]
    replaced = {}
    for name in provider.reads:
        if name == "config" and name not in known and "self.config" in map(dotted_name, configs):
            replaced[name] = "self.config"
        elif name not in known:
            raise LoomError(
                f"the provider of {provider.value} reads {name!r}, which {provider.site} "
                f"({function.where}) does not have",
                str(provider.origin),
                f"It has {', '.join(sorted(known - {'self'}))}.",
            )
    taken = names_in(function.node) | known
    own = scopes_of(TracedTree(provider.body).tree).bound if provider.body.text else set()
    replaced |= {local: f"{provider.value}_{local}" for local in sorted(own - set(provider.reads)) if local in taken}
    _check_provider(provider, function, own)
    return replace_names(text, replaced)


def _check_provider(provider: Provider, function: Function, own: set[str]) -> None:
    """What a provider binds stays its own, and what it takes from its module is no variable of the site."""
    rebound = sorted(own & set(provider.reads))
    if rebound:
        message = f"the provider of {provider.value} rebinds {rebound[0]}, which {provider.site} ({function.where}) has"
        raise LoomError(message, str(provider.origin), "Bind another name.")
    texts = [provider.body, Traced.insert(" ", provider.origin) + provider.result]
    read = {name for text in texts if text.text for name in scopes_of(TracedTree(text).tree).outside()}
    site = scopes_of(function.source.tree).inner[function.node]
    for name in sorted((read - own - set(provider.reads)) & (site.bound | site.outer)):
        message = (
            f"the provider of {provider.value} uses {name}, which is a variable of {provider.site} ({function.where})"
        )
        raise LoomError(message, str(provider.origin), "Give it as a parameter of the provider, or rename one of them.")


def inlined(plan: Plan, function: Function, name: str) -> str:
    """The expression of a value that is only passed on, made by a name or an attribute, or for one call by an item."""
    provider = plan.values[name].providers.get(function.id)
    text = provider.result.text.split("#")[0].strip() if provider else ""
    if provider is None or provider.optional or provider.body.text or not _PATH.fullmatch(text):
        return ""
    calls = [call for call in plan.graph.calls_of(function.id) if call in plan.values[name].passes]
    readers = [plan.values[other].providers[function.id].reads for other in plan.provided(function.id)]
    read = name in names_in(function.node) or any(name in reads for reads in readers)
    if read or not calls or (len(calls) > 1 and "[" in text):
        return ""
    constant = all(_is_constant(plan, function, call, text) for call in calls)
    return _result(plan, function, provider).text.split("#")[0].strip() if constant else ""


def _is_constant(plan: Plan, function: Function, call: Call, text: str) -> bool:
    """Whether an expression has the value at a call that it has at the top of the function, as far as one can see."""
    head, *parts = re.findall(r"\w+", text)
    names, nodes = plan.graph.names.texts[function.key], function.nodes
    variable = plan.graph.names.local(function, head)
    binding = names.bound.get(variable, [])
    shadowed = names.seen(head, names.around(call.node.func)) != variable
    if shadowed or len(binding) > 1 or not all(isinstance(node, ast.arg) for node in binding):
        return False
    for target in (part for node in nodes for whole in targets_of(node) for part in parts_of(whole) if parts):
        other = isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and target.attr not in parts)
        if not other and dotted_name(root(target)) == head:
            return False
    if "[" in text:  # what has it otherwise may change it; and an f-string has no place for its quotes
        items = {node.value for node in nodes if isinstance(node, ast.Subscript)}
        found = {found.node for found in names.scopes.occurrences if names.of(found) == variable}
        quoted = any(isinstance(node, ast.JoinedStr) and call.node in walk(node) for node in nodes)
        if found - items - names.binding or quoted:
            return False
    assigned = [(key, target) for part in parts for key, target, _ in plan.graph.classes.assigned.get(part, ())]
    return "." not in text or all(_is_initial(plan, key, target) for key, target in assigned)


def _is_initial(plan: Plan, key: str, target: ast.Attribute) -> bool:
    """Whether an attribute is assigned where its object is made."""
    name, standing = target.value, plan.graph.names.texts[key].standing
    around = standing[name].scope.node if isinstance(name, ast.Name) else None
    return isinstance(around, FUNCTIONS) and around.name == "__init__"
