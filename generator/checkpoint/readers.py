"""The functions of a woven package that read a config.json, run without what the package needs."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from generator.errors import LoomError, short
from generator.language.parts import Definition, Import
from generator.package.config import config_class, merge_fields
from generator.recipe.recipe import Recipe
from generator.weave.link import free_names
from generator.weaver import weave_some


class MissingSetting(LoomError):
    """A setting that config.json lacks, and that has no value of its own."""

    def __init__(self, setting: str, shown: str):
        super().__init__(f"the setting {setting!r} is missing or ignored", shown, "Give it.")
        self.setting = setting


READERS = ("complete", "hf_sizes", "hf_structure", "hf_tensors", "hf_layer_tensors", "hf_buffers")


class Readers:
    """The functions of a package that read a config.json, Config and its check, woven by themselves.

    Attributes:
        mentioned: the settings that `complete` reads.
    """

    def __init__(self, recipe: Recipe):
        woven = weave_some(recipe, (*READERS, "check_config"))
        text = config_class(recipe, merge_fields(recipe))
        own = {path for definition in woven.values() for path in definition.text.paths()} | {*text.paths()}
        self._names: dict[str, Any] = {"__name__": "readers", "dataclasses": dataclasses}
        used = [fragment for fragment in recipe.fragments if fragment.path in own]
        for it in (it for fragment in used for it in fragment.imports.values()):
            if it.module.partition(".")[0] in sys.stdlib_module_names:
                self._names[it.alias] = _import(it)
        exec(compile(text.text, "config.py", "exec", dont_inherit=True), self._names)
        # annotations stay unevaluated: they name what is not imported here
        flags = __future__.annotations.compiler_flag
        for name, definition in woven.items():
            try:
                exec(compile(definition.text.text, name, "exec", flags, dont_inherit=True), self._names)
            except (NameError, AttributeError):  # a class or a value that needs a package
                continue
        reading = _used_by("complete", woven)
        constants = (it for name in reading for it in ast.walk(ast.parse(woven[name].text.text)))
        self.mentioned = {it.value for it in constants if isinstance(it, ast.Constant) and isinstance(it.value, str)}

    def complete(self, hf: dict[str, Any], shown: str) -> dict[str, Any]:
        """Returns config.json with the values of settings that are left out."""
        try:
            return self._names["complete"](deepcopy(hf))
        except KeyError as setting:
            raise MissingSetting(str(setting.args[0]), shown) from None
        except Exception as error:  # of any class, as the value is anybody's
            without = {name: self._reads({it: hf[it] for it in hf if it != name}) for name in hf}
            culprits = [name for name in hf if without[name] == max(without.values()) > 0]
            named = " and ".join(f"{name} is {short(json.dumps(hf[name]))}" for name in culprits)
            message = f"{named or 'it is as it is'}, by which it cannot be read: {short(str(error))}"
            raise LoomError(message, shown, "Fix the value.") from None

    def _reads(self, hf: dict[str, Any]) -> int:
        """Returns whether `complete` takes a config.json: 2, or 1 where a setting is missing, or 0."""
        try:
            self._names["complete"](deepcopy(hf))
        except Exception as error:
            return int(isinstance(error, KeyError))
        return 2

    def sizes(self) -> list[tuple[str, str]]:
        """Returns the settings that are read into Config, and their fields."""
        return list(self._names["hf_sizes"]())

    def tensors(self) -> set[str]:
        """Returns the names of its tensors in checkpoints, with {} for numbers."""
        return {name for list_of in ("hf_tensors", "hf_layer_tensors") for _, name, _ in self._names[list_of]()}

    def buffers(self) -> tuple[str, ...]:
        """Returns ends of the names of tensors that checkpoints may have besides."""
        return tuple(self._names["hf_buffers"]())

    def config(self, hf: dict[str, Any]) -> SimpleNamespace:
        """Returns what the sizes of a completed config.json make of Config."""
        return SimpleNamespace(**{field: hf.get(setting) for setting, field in self.sizes()})

    def structure(self, hf: dict[str, Any], shown: str) -> list[tuple[str, Any, str]]:
        """Returns the settings that the package was woven for, their values, and what to select for another."""
        found, structure = [], self._names["hf_structure"](self.config(hf))
        try:
            found += structure
        except Exception as error:  # what follows from a size that is missing, or that no model has
            if all(hf.get(setting) is not None for setting, _ in self.sizes()):
                message = f"its sizes are impossible: {short(str(error))}"
                raise LoomError(message, shown, "Fix them.") from None
        return found

    def refusal(self, full: dict[str, Any], hf: dict[str, Any]) -> str:
        """Returns why the package would not take the sizes of a completed config.json, by the names of the settings.

        Args:
            hf: config.json as it is.
        """
        settings = {field: setting for setting, field in self.sizes()}
        floats = {it.name for it in dataclasses.fields(self._names["Config"]) if it.type is float}
        sizes = {it: float(x) if it in floats else x for it, x in vars(self.config(full)).items()}
        width, heads, head_size = (sizes.get(field) or 0 for field in ("width", "heads", "head_size"))
        if heads and head_size == width // heads and width % heads and "head_dim" not in hf:
            return f"{settings['width']} [width] {width}: must be a multiple of {settings['heads']} [heads] {heads}"
        try:
            config = self._names["Config"](**sizes)
            fitting = {"sequence_length": max(1, min(config.sequence_length, config.context_length))}
            self._names["check_config"](dataclasses.replace(config, **fitting))
        except Exception as error:
            if type(error).__name__ != "InputError":  # that of a package which has no such check
                return ""
            fields = {field.replace("_", "-"): f"{setting} [{field}]" for field, setting in settings.items()}
            return re.sub(r"--([\w-]+)", lambda it: fields.get(it[1], it[0]), str(error))
        return ""


def _import(it: Import) -> Any:
    """Returns what an import of Python's library binds."""
    module = importlib.import_module(it.module)
    if it.name:
        return getattr(module, it.name)
    return module if it.alias != it.module.partition(".")[0] else sys.modules[it.alias]


def _used_by(name: str, woven: Mapping[str, Definition]) -> set[str]:
    """Returns the definitions that one uses, itself included."""
    found, queue = set[str](), [name]
    while queue:
        if (key := queue.pop()) in woven and key not in found:
            found.add(key)
            queue += free_names(woven[key].text.text)
    return found
