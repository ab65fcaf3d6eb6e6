"""The threading operator: carries values to where splices use them, and outward to where they are read.

before: `loss` provides segment_ids, a splice in Attention reads it        after
    def loss(model: Decoder, batch):                        def loss(model: Decoder, batch):
        logits = model(batch["tokens"])                         logits = model(batch["tokens"], batch["segment_ids"])

    class Decoder:                                          class Decoder:
        def __call__(self, tokens):                             def __call__(self, tokens, segment_ids):
            def block(x, layer: Block):                             def block(x, layer: Block):
                x = layer(x)                                            x = layer(x, segment_ids)
                return x, None                                          return x, None

Inward, a function that needs a value takes it as a parameter, and so does each of its callers, up to one that has it:
the site of a provider, or a function with a parameter that requests it. Outward, a function returns the value beside
its result, and so does each caller, up to one that reads it; a scan stacks it over the layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from generator.code.traced import Origin
from generator.language.parts import Definition, Import, Provider
from generator.thread.carry import carry
from generator.thread.graph import CallGraph
from generator.thread.plan import make_plan
from generator.thread.refuse import check_plan, check_result
from generator.weave.adapt import Need


def thread(
    definitions: dict[str, Definition],
    providers: Iterable[Provider],
    needs: Iterable[Need],
    imports: Mapping[str, Mapping[str, Import]],
    multi_layer: Iterable[str] = (),
    layer_arguments: dict[str, Origin] | None = None,
) -> dict[str, Definition]:
    """Threads every value that splices and signatures request.

    Args:
        definitions: key -> definition, spliced.
        providers: the providers of the selected fragments, in order of selection.
        needs: the names that splices read and their points do not show.
        imports: path of a fragment -> what it imports, by the name that it binds.
        multi_layer: functions that call several layers, in which a value of each layer becomes a tuple of them.
        layer_arguments: names that layers of some kind are made or called with.
    """
    graph = CallGraph(definitions, imports)
    plan = make_plan(graph, list(providers), list(needs), multi_layer, layer_arguments)
    check_plan(plan)
    texts = carry(plan)
    check_result(plan, texts)
    return {key: replace(definition, text=texts.get(key, definition.text)) for key, definition in definitions.items()}
