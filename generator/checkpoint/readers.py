"""Runs the functions of a woven package that read a config.json, without the libraries that the package needs."""

from __future__ import annotations
import __future__

import ast
import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from generator.code.traced import Traced
from generator.errors import LoomError, short
from generator.language.numbers import NUMBERS
from generator.language.parts import Definition
from generator.package.config import merge_fields, write_config
from generator.recipe.recipe import Recipe
from generator.weave.link import free_names
from generator.weave.partial import weave_some


class MissingSetting(LoomError):
    """An error of a setting that config.json lacks and that has no default."""

    def __init__(self, setting: str, where: str):
        super().__init__(f"the setting {setting!r} is missing or ignored", where, "Give it.")
        self.setting = setting


class UnreadableSettings(LoomError):
    """An error of settings of config.json whose values cannot be read."""

    def __init__(self, message: str, settings: list[str], where: str):
        super().__init__(message, where, "Fix the value.")
        self.settings = settings


READERS = ("complete", "hf_sizes", "hf_structure", "hf_tensors", "hf_layer_tensors", "hf_buffers")


class ConfigReader:
    """The functions of a package that read a config.json, Config and its check, woven alone.

    Attributes:
        mentioned: the strings in `complete`, settings among them.
        defaults: setting -> its value if config.json leaves it out, as the architecture says.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.defaults = {key: x for file in recipe.lineage for key, x in file.data.hf.defaults.items()}
        woven = weave_some(recipe, (*NUMBERS, *READERS, "check_config"))
        numbers = [woven[name].text for name in NUMBERS if name in woven]
        text = Traced.join([*numbers, *write_config(recipe, merge_fields(recipe)).values()])
        paths = {path for definition in woven.values() for path in definition.text.paths()} | {*text.paths()}
        self._names: dict[str, Any] = {"__name__": "readers", "dataclasses": dataclasses}
        imports = [item for f in recipe.fragments if f.path in paths for item in f.imports.values()]
        for item in imports:
            library = item.module.partition(".")[0]
            if library in sys.stdlib_module_names:
                statement = f"from {item.module} import {item.name}" if item.name else f"import {item.module}"
                renamed = f" as {item.alias}" if item.alias != (item.name or library) else ""
                exec(statement + renamed, self._names)
        exec(compile(text.text, "config.py", "exec", dont_inherit=True), self._names)
        # annotations stay unevaluated: they mention modules that are not imported here
        flags = __future__.annotations.compiler_flag
        for name, definition in woven.items():
            with suppress(NameError, AttributeError):  # of a class or a value that needs another library
                exec(compile(definition.text.text, name, "exec", flags, dont_inherit=True), self._names)
        used = _find_transitive_uses("complete", woven)
        nodes = (node for name in used for node in ast.walk(ast.parse(woven[name].text.text)))
        self.mentioned = {
            node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    def complete(self, hf: dict[str, Any], where: str) -> dict[str, Any]:
        """Returns config.json with the values of settings that are left out.

        Args:
            where: its path, for errors.

        Raises:
            MissingSetting: a setting without a default is left out.
        """
        try:
            return self._names["complete"](deepcopy(hf))
        except KeyError as setting:
            raise MissingSetting(str(setting.args[0]), where) from None
        except Exception as error:  # of any class, as the value is anybody's
            scores = {name: self._score({other: hf[other] for other in hf if other != name}) for name in hf}
            culprits = [name for name in hf if scores[name] == max(scores.values()) > 0]
            values = " and ".join(f"{name} is {short(json.dumps(hf[name]))}" for name in culprits)
            message = f"{f'{values}, and this' if values else 'it'} cannot be read: {short(str(error))}"
            raise UnreadableSettings(message, culprits, where) from None

    def _score(self, hf: dict[str, Any]) -> int:
        """Returns how well `complete` reads a config.json: 2, or 1 if a setting is missing, or 0 for another error."""
        try:
            self._names["complete"](deepcopy(hf))
        except Exception as error:
            return int(isinstance(error, KeyError))
        return 2

    def sizes(self) -> list[tuple[str, str]]:
        """Returns the settings of sizes, each with its field of Config."""
        return list(self._names["hf_sizes"]())

    def tensors(self) -> set[str]:
        """Returns the names of the package's tensors in checkpoints, with {} for numbers."""
        return {name for function in ("hf_tensors", "hf_layer_tensors") for _, name, _ in self._names[function]()}

    def buffers(self) -> tuple[str, ...]:
        """Returns suffixes of the names of other tensors that checkpoints may have."""
        return tuple(self._names["hf_buffers"]())

    def config(self, hf: dict[str, Any]) -> SimpleNamespace:
        """Returns the fields of Config by the sizes of a completed config.json."""
        return SimpleNamespace(**{field: hf.get(setting) for setting, field in self.sizes()})

    def structure(self, hf: dict[str, Any], where: str) -> list[tuple[str, Any, str]]:
        """Returns the settings of structure, each with the woven value, and what to select for another value."""
        rows = []
        try:
            rows += self._names["hf_structure"](self.config(hf))
        except Exception as error:  # of any class: a size is missing, or impossible
            if all(hf.get(setting) is not None for setting, _ in self.sizes()):
                message = f"its sizes are impossible: {short(str(error))}"
                raise LoomError(message, where, "Fix them.") from None
        return rows

    def find_size_error(self, full: dict[str, Any], hf: dict[str, Any]) -> str:
        """Returns the error of the package for the sizes of a completed config.json, with the names of settings, or ''.

        Args:
            hf: config.json as it is.
        """
        settings = {field: setting for setting, field in self.sizes()}
        members = (member for fragment in self.recipe.fragments for member in fragment.fields)
        floats = {member.name for member in members if member.kind == "float"}
        sizes = {field: float(x) if field in floats else x for field, x in vars(self.config(full)).items()}
        width, heads, head_size = (sizes.get(field) or 0 for field in ("width", "heads", "head_size"))
        if heads and head_size == width // heads and width % heads and "head_dim" not in hf:
            return f"{settings['width']} [width] {width}: must be a multiple of {settings['heads']} [heads] {heads}"
        try:
            config = self._names["Config"](**sizes)
            fitting = {"sequence_length": max(1, min(config.sequence_length, config.context_length))}
            self._names["check_config"](dataclasses.replace(config, **fitting))
        except Exception as error:
            if type(error).__name__ != "InputError":  # the package has no check
                return ""
            fields = {field.replace("_", "-"): f"{setting} [{field}]" for field, setting in settings.items()}
            return re.sub(r"--([\w-]+)", lambda it: fields.get(it[1], it[0]), str(error))
        return ""


def _find_transitive_uses(name: str, woven: Mapping[str, Definition]) -> set[str]:
    """Returns the names of a definition and of those that it uses, directly or not."""
    used, queue = set[str](), [name]
    while queue:
        if (key := queue.pop()) in woven and key not in used:
            used.add(key)
            queue += free_names(woven[key].text.text)
    return used
