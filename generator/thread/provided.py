"""The code of providers at their sites: statements, or an expression in the place of the argument."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import libcst as cst

from generator.code.bindings import names_in, scopes_of
from generator.code.edits import Edits, Statement
from generator.code.renaming import replace_names
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, TracedTree, dotted_name, walk
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call, Function
from generator.thread.plan import Plan

_PATH = re.compile(r"""None|(?P<head>\w+)(\.(?P<attribute>\w+)|\[(?P<item>["']\w+["'])\])""")


def provider_order(plan: Plan, function: Function) -> list[str]:
    """Returns the values that providers make in a function, each after those that its provider reads."""
    names = plan.functions[function.id].provided
    reads = {name: set(plan.values[name].providers[function.id].reads) & set(names) - {name} for name in names}
    try:
        return [*TopologicalSorter(reads).static_order()]
    except CycleError as error:
        cycle = sorted(set(error.args[1]))
        origin = plan.values[cycle[0]].origin
        raise LoomError(f"{' and '.join(cycle)} are made from each other", str(origin), "Break the cycle.") from None


def provider_statements(plan: Plan, function: Function, provider: Provider, edits: Edits) -> list[Statement]:
    """Returns `name = result`, or `if name is None: name = result` where callers may pass the value."""
    name, cause = provider.value, provider.origin
    statements = edits.copy(_adapt(plan, function, provider, provider.body))
    (last,) = edits.copy(_adapt(plan, function, provider, provider.returned))
    assignment = edits.new(cst.Assign([cst.AssignTarget(cst.Name(name))], last.body[0].value), cause)
    statements.append(edits.altered(last, body=[assignment], leading_lines=()))
    if not provider.optional:
        return statements
    return [edits.new(cst.If(cst.parse_expression(f"{name} is None"), cst.IndentedBlock(statements)), cause)]


def _adapt(plan: Plan, function: Function, provider: Provider, text: Traced) -> Traced:
    """Returns a provider's text in the names of its site: `self.config` for `config`."""
    if not text.text:
        return text
    change = plan.functions[function.id]
    known = {"self", *function.parameter_names, *change.required, *change.optional, *change.provided}
    assigned = plan.graph.classes.assigned.get("config", ()) if function.class_name else ()
    configs = {dotted_name(target) for key, target, _ in assigned if key == function.key}
    replaced = {}
    for name in provider.reads:
        if name == "config" and name not in known and "self.config" in configs:
            replaced[name] = "self.config"
        elif name not in known:
            message = f"the provider of {provider.value} reads {name!r}, which {provider.site} "
            remedy = f"It has {', '.join(sorted(known - {'self'}))}."
            raise LoomError(f"{message}({function.where}) does not have", str(provider.origin), remedy)
    own = scopes_of(TracedTree(provider.body).tree).bound if provider.body.text else set()
    _check_hygiene(provider, function, own, known)
    return replace_names(text, replaced)


def _check_hygiene(provider: Provider, function: Function, own: set[str], known: set[str]) -> None:
    """Refuses a provider that binds a name of its site, or whose module names are variables there.

    Args:
        own: the names that the provider binds.
        known: the parameters and the values of the site.
    """
    if rebound := sorted(own & (names_in(function.node) | known | {*provider.reads})):
        message = f"the provider of {provider.value} binds {rebound[0]}, which {provider.site} ({function.where}) has"
        raise LoomError(message, str(provider.origin), "Bind another name.")
    texts = provider.body, provider.returned
    read = {name for text in texts if text.text for name in scopes_of(TracedTree(text).tree).outside()}
    site = scopes_of(function.source.tree).inner[function.node]
    for name in sorted((read - own - set(provider.reads)) & (site.bound | site.outer)):
        message = (
            f"the provider of {provider.value} uses {name}, which is a variable of {provider.site} ({function.where})"
        )
        raise LoomError(message, str(provider.origin), "Give it as a parameter of the provider, or rename one of them.")


def inlined(plan: Plan, function: Function, name: str) -> str:
    """Returns the expression that calls pass in place of a value's name, else ''.

    It is None, `self.window` or `batch["k"]`, is the same at the calls as at the top of the function, and the function
    uses the value for nothing else. An item is passed by one call only.
    """
    provider = plan.values[name].providers.get(function.id)
    text = provider.result if provider else ""
    if provider is None or provider.optional or provider.body.text or not (path := _PATH.fullmatch(text)):
        return ""
    calls = [call for call in plan.graph.calls_of[function.id] if call in plan.values[name].passes]
    reads = {read for n in plan.functions[function.id].provided for read in plan.values[n].providers[function.id].reads}
    if name in names_in(function.node) | reads or not calls or (len(calls) > 1 and path["item"]):
        return ""
    is_constant = text == "None" or _is_constant(plan, function, calls, path)
    return replace(provider, returned=_adapt(plan, function, provider, provider.returned)).result if is_constant else ""


def _is_constant(plan: Plan, function: Function, calls: list[Call], path: re.Match[str]) -> bool:
    """Returns whether a path certainly has the same value at some calls as at the top of the function."""
    head, text, nodes = path["head"], plan.graph.names.texts[function.key], function.nodes
    variable = plan.graph.names.local(function, head)
    is_shadowed = any(text.lookup(head, text.scope_of(call.node.func)) != variable for call in calls)
    if is_shadowed or not all(isinstance(node, ast.arg) for node in text.bindings.get(variable, [])):
        return False
    if path["item"]:  # another reference to the container may change it, and an f-string has no place for the quotes
        items = {n.value for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)}
        uses = {occurrence.node for occurrence in text.scopes.occurrences if text.variable(occurrence) == variable}
        strings = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        return uses <= items | text.binding_nodes and not any(calls[0].node in walk(string) for string in strings)
    for key, target, _ in plan.graph.classes.assigned.get(path["attribute"], ()):  # only where objects are made
        name, occurrences = target.value, plan.graph.names.texts[key].occurrences
        scope = occurrences[name].scope.node if isinstance(name, ast.Name) else None
        is_made = isinstance(scope, FUNCTIONS) and scope.name == "__init__"
        if not is_made or (scope is function.node and dotted_name(name) == head):
            return False
    return True
