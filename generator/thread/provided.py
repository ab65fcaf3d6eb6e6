"""What providers make at their sites: statements there, or an expression where it is passed on."""

from __future__ import annotations

import re

from generator.code import syntax
from generator.code.names import as_block, bound_names, own_bound, unblocked, variables
from generator.code.traced import Edit, Traced
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Function
from generator.thread.plan import Plan

_PATH = re.compile(r"[\w.]+(\[[\w\"']+\])*")  # a name, an attribute or an item: as short as a name of its own


def provider_order(plan: Plan, function: Function) -> list[str]:
    """What a provider reads comes before it."""
    waiting, done = list(plan.provided.get(function.id, ())), []
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
    known = {*function.parameter_names, *plan.required.get(function.id, ()), *plan.optional.get(function.id, ())}
    known |= set(plan.provided.get(function.id, ())) | {"self"}
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
    own = bound_names(as_block(provider.body).module) if provider.body.text else set()
    replaced |= {local: f"{provider.value}_{local}" for local in sorted(own - set(provider.reads)) if local in taken}
    _check_provider(provider, function, own)
    source = as_block(text)
    edits = []
    for node in variables(source.module):
        if node.value in replaced:
            start, end = source.span(node)
            edits.append(Edit(start, end, Traced.insert(replaced[node.value], source.traced.origin_at(start))))
    return unblocked(source.traced.edited(edits))


def _check_provider(provider: Provider, function: Function, own: set[str]) -> None:
    """What a provider binds stays its own, and what it takes from its module is no variable of the site."""
    rebound = sorted(own & set(provider.reads))
    if rebound:
        message = f"the provider of {provider.value} rebinds {rebound[0]}, which {provider.site} ({function.where}) has"
        raise LoomError(message, str(provider.origin), "Bind another name.")
    texts = [provider.body, Traced.insert(" ", provider.origin) + provider.result]
    read = {node.value for text in texts if text.text for node in variables(as_block(text).module)}
    for name in sorted((read - own - set(provider.reads)) & own_bound(function.node)):
        message = (
            f"the provider of {provider.value} uses {name}, which is a variable of {provider.site} ({function.where})"
        )
        raise LoomError(message, str(provider.origin), "Give it as a parameter of the provider, or rename one of them.")


def inlined(plan: Plan, function: Function, name: str) -> bool:
    """A value that is only passed on, made by a name or an attribute, or for one call alone by an item."""
    provider = plan.values[name].providers.get(function.id)
    if (
        provider is None
        or provider.optional
        or provider.body.text
        or not _PATH.fullmatch(provider.result.text.split("#")[0].strip())
    ):
        return False
    passing = [
        i for i, call in enumerate(plan.graph.calls) if call.caller == function.id and name in plan.passed.get(i, ())
    ]
    reads = any(node.value == name for node in variables(function.node))
    others = any(name in plan.values[n].providers[function.id].reads for n in plan.provided.get(function.id, ()))
    simple = re.fullmatch(r"[\w.]+", provider.result.text.split("#")[0].strip())  # as short at every call
    return (len(passing) == 1 or (simple is not None and len(passing) > 1)) and not reads and not others


def expression(plan: Plan, caller: Function, name: str) -> str:
    """What a caller passes for a value: its name, or what a provider makes it from."""
    if not inlined(plan, caller, name):
        return name
    return _result(plan, caller, plan.values[name].providers[caller.id]).text.split("#")[0].strip()
