"""Requests for an adapter, in an engine: each is computed with its own, and shares no pages with others."""

import numpy as np
from jax import Array

from generator.language import requires, splice
from generator.language.roles import adapter_names, choose_adapters, keep_adapters

requires("adapted_linear", "engine/engine")


@splice("SamplingParams.fields")
def _():
    adapter: str = ""  # name of the adapter that computes the sequence; "": none


@splice("SamplingMetadata.fields")
def _():
    adapter: Array | None = None  # number of the adapter, 0 for none


@splice("default_sampling_metadata.types")
def _(types):
    types |= {"adapter": np.int32}


@splice("Engine.pool")
def _(self, model):
    self.adapters = ["", *adapter_names(model)]  # by their numbers


@splice("Engine.request", after="reload_engine")
def _(self, request, problems):
    if request.sampling.adapter not in self.adapters:
        names = ", ".join(self.adapters[1:]) or "none"
        problems.append(("adapter", f"adapter {request.sampling.adapter}: must be one of {names}"))
    else:
        request.root += self.adapters.index(request.sampling.adapter).to_bytes(4)  # no pages of another one


@splice("Engine.own")
def _(self, values, request):
    values["adapter"] = self.adapters.index(request.sampling.adapter)


@splice("run.model", after="unstacked")
def _(model, step):
    choose_adapters(model, step.sampling.adapter)


@splice("replace_weights.model", after="unstacked")
def _(engine, model):
    keep_adapters(engine.device.model, model)
