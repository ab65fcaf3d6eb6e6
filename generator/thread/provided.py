"""What providers make at their sites: statements there, or an expression where it is passed on."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, unblocked, variables
from generator.code.scopes import Scope, scopes_of
from generator.code.traced import Traced
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call, Function
from generator.thread.names import root, targets_of
from generator.thread.plan import Plan
from generator.weave.adapt import replace_names

_PATH = re.compile(r"[\w.]+(\[[\w\"']+\])*")  # a name, an attribute or an item: as short as a name of its own


def provider_order(plan: Plan, function: Function) -> list[str]:
    """What a provider reads comes before it."""
    waiting, done = list(plan.provided(function.id)), []
    while waiting:
        ready = next(
            (n for n in waiting if not set(plan.values[n].providers[function.id].reads) & (set(waiting) - {n})), None
        )
        if ready is None:
            origin = plan.values[waiting[0]].origin
            raise LoomError(f"{' and '.join(waiting)} are made from each other", str(origin), "Break the circle.")
        waiting.remove(ready)
        done.append(ready)
    return done


def made(plan: Plan, function: Function, provider: Provider, indent: str) -> Traced:
    """`name = result`, or `if name is None: name = result` where callers may hand it in."""
    name, cause = provider.value, provider.origin
    inner = indent + ("    " if provider.optional else "")
    parts = [Traced.insert(f"{indent}if {name} is None:\n", cause)] if provider.optional else []
    if provider.body.text:
        parts.append(syntax.reindent(_in_names_of(plan, function, provider, provider.body), len(inner)))
    parts += [Traced.insert(f"{inner}{name} =", cause), _result(plan, function, provider), Traced.insert("\n", cause)]
    return Traced.join(parts)


def _result(plan: Plan, function: Function, provider: Provider) -> Traced:
    return _in_names_of(plan, function, provider, Traced.insert(" ", provider.origin) + provider.result)


def _in_names_of(plan: Plan, function: Function, provider: Provider, text: Traced) -> Traced:
    """The provider's text with `config` read from where the site has it, and every name checked."""
    known = {*function.parameter_names, *plan.required(function.id), *plan.optional(function.id)}
    known |= set(plan.provided(function.id)) | {"self"}
    replaced = {}
    for name in provider.reads:
        if name == "config" and name not in known and function.class_name in plan.graph.classes.has_config:
            replaced[name] = "self.config"
        elif name not in known:
            raise LoomError(
                f"the provider of {provider.value} reads {name!r}, which {provider.site} "
                f"({function.where}) does not have",
                str(provider.origin),
                f"It has {', '.join(sorted(known - {'self'}))}.",
            )
    taken = {node.value for node in variables(function.node)} | known
    own = scopes_of(as_block(provider.body).module).module.bound if provider.body.text else set()
    replaced |= {local: f"{provider.value}_{local}" for local in sorted(own - set(provider.reads)) if local in taken}
    _check_provider(provider, function, own)
    return unblocked(replace_names(as_block(text), replaced))


def _check_provider(provider: Provider, function: Function, own: set[str]) -> None:
    """What a provider binds stays its own, and what it takes from its module is no variable of the site."""
    rebound = sorted(own & set(provider.reads))
    if rebound:
        message = f"the provider of {provider.value} rebinds {rebound[0]}, which {provider.site} ({function.where}) has"
        raise LoomError(message, str(provider.origin), "Bind another name.")
    texts = [provider.body, Traced.insert(" ", provider.origin) + provider.result]
    scopes = [scopes_of(as_block(text).module) for text in texts if text.text]
    read = {name.value for scope in scopes for name, binder in scope.meant() if binder is None}
    site = scopes_of(function.source.module).inner[function.node]
    for name in sorted((read - own - set(provider.reads)) & (site.bound | site.outer)):
        message = (
            f"the provider of {provider.value} uses {name}, which is a variable of {provider.site} ({function.where})"
        )
        raise LoomError(message, str(provider.origin), "Give it as a parameter of the provider, or rename one of them.")


def inlined(plan: Plan, function: Function, name: str) -> bool:
    """A value that is only passed on, made by a name or an attribute, or for one call alone by an item."""
    value = plan.values[name]
    provider = value.providers.get(function.id)
    text = provider.result.text.split("#")[0].strip() if provider else ""
    if provider is None or provider.optional or provider.body.text or not _PATH.fullmatch(text):
        return False
    calls = [call for call in plan.graph.calls_of(function.id) if call in value.passed]
    few = len(calls) == 1 or (calls and re.fullmatch(r"[\w.]+", text))  # as short at every call
    reads = any(node.value == name for node in variables(function.node))
    others = any(name in plan.values[n].providers[function.id].reads for n in plan.provided(function.id))
    return bool(few) and not reads and not others and all(_is_constant(plan, function, call, text) for call in calls)


def _is_constant(plan: Plan, function: Function, call: Call, text: str) -> bool:
    """Whether an expression has the value at a call that it has at the top of the function, as far as one can see."""
    head, *parts = re.findall(r"\w+", text)
    names, nodes = plan.graph.names.texts[function.key], syntax.walk(function.node)
    variable = plan.graph.names.local(function, head)
    binding, there = names.bound.get(variable, []), names.seen(head, names.around(call.node.func))
    if there != variable or len(binding) > 1 or not all(isinstance(node, cst.Param) for node in binding):
        return False
    targets = {syntax.dotted(root(t)) for node in nodes for t in targets_of(node) if not isinstance(t, cst.Name)}
    items = {node.value for node in nodes if isinstance(node, cst.Subscript)}
    passed = {n for n in nodes if isinstance(n, cst.Name) and n in names.standing and names.of(n) == variable}
    if (parts and head in targets) or ("[" in text and not passed <= items | names.binding):
        return False  # what has it otherwise may change it
    if any(isinstance(node, cst.FormattedString) and call.node in syntax.walk(node) for node in nodes):
        return "[" not in text
    given = [(key, target) for part in parts for key, target, _ in plan.graph.classes.given.get(part, ())]
    return "." not in text or all(_is_initial(plan.graph.names.texts[key].standing, target) for key, target in given)


def _is_initial(standing: Mapping[cst.Name, Scope], target: cst.Attribute) -> bool:
    """Whether an attribute is assigned where its object is made."""
    scope = standing.get(target.value) if isinstance(target.value, cst.Name) else None
    return scope is not None and isinstance(scope.node, cst.FunctionDef) and scope.node.name.value == "__init__"


def expression(plan: Plan, caller: Function, name: str) -> str:
    """What a caller passes for a value: its name, or what a provider makes it from."""
    if not inlined(plan, caller, name):
        return name
    return _result(plan, caller, plan.values[name].providers[caller.id]).text.split("#")[0].strip()
