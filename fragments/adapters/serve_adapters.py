"""LoRA adapters of peft, served by their names."""

import dataclasses

from generator.language import requires, splice
from generator.language.roles import InputError, Refusal, adapter_directories, load_adapters

requires("engine_adapters", "serve/serve", "generate/generate")


@splice("ServeSettings.fields", "GenerateSettings.fields")
def _():
    lora_modules: tuple[str, ...] = ()  # NAME=DIR of each LoRA adapter of peft


@splice("serve.start")
def _(settings):
    if settings.model in adapter_directories(settings.lora_modules):
        raise InputError(f"--lora-modules {settings.model}: the model has that name: give another, or --model")


@splice("serve.loaded")
def _(settings, config, model, mesh):
    load_adapters(config, model, settings.lora_modules, mesh)


@splice("generate.loaded")
def _(settings, config, model, mesh):
    from generator.language.roles import load_adapters

    load_adapters(config, model, settings.lora_modules, mesh)


@splice("Server.model")
def _(self, request):
    names = [self.settings.model, *self.engine.engine.adapters[1:]]
    if request.model not in ("", *names):
        known = " or ".join(map(repr, names))
        raise Refusal(404, f"there is no model {request.model!r}: use {known}", "model", "model_not_found")


@splice("Server.prepared")
def _(self, request, prompts):
    if request.model in self.engine.engine.adapters:
        prompts = [(prompt, dataclasses.replace(sampling, adapter=request.model)) for prompt, sampling in prompts]


@splice("Server.models")
def _(self, models):
    base = self.settings.model
    models |= {name: models[base] | {"id": name, "parent": base} for name in self.engine.engine.adapters[1:]}


@splice("Answer.model")
def _(server, request, model):
    model = request.model or server.settings.model
