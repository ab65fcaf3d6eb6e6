"""What a woven package makes of a config.json, run without what the package needs: readers, Config and its check."""

from __future__ import annotations
import __future__

import ast
import json
import re
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from generator.errors import LoomError, short


class MissingSetting(LoomError):
    """A setting that config.json lacks, and that has no value of its own."""

    def __init__(self, setting: str, shown: str):
        super().__init__(f"the setting {setting!r} is missing", shown, "Give it.")
        self.setting = setting


class Readers:
    """What of a package's huggingface.py, config.py and errors.py needs nothing but Python and its library.

    Attributes:
        mentioned: the settings that `complete` reads.
    """

    def __init__(self, files: Mapping[str, str]):
        self._names: dict[str, Any] = {"__name__": "readers"}
        for file in "config.py", "errors.py":
            own = [node for node in ast.parse(files.get(file, "")).body if _is_own(node)]
            exec(compile(ast.Module(own, []), file, "exec", dont_inherit=True), self._names)
        plain = [node for node in ast.parse(files["huggingface.py"]).body if _is_plain(node)]
        reading = [node for node in plain if isinstance(node, ast.Assign) or getattr(node, "name", "") == "complete"]
        constants = (node.value for top in reading for node in ast.walk(top) if isinstance(node, ast.Constant))
        self.mentioned = {value for value in constants if isinstance(value, str)}
        # annotations stay unevaluated: they name what is not imported here
        flags = __future__.annotations.compiler_flag
        exec(compile(ast.Module(plain, []), "huggingface.py", "exec", flags), self._names)

    def complete(self, hf: dict[str, Any], shown: str) -> dict[str, Any]:
        """config.json with the values of settings that are left out."""
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
        """Whether `complete` takes a config.json: 2, or 1 where a setting is missing, or 0."""
        try:
            self._names["complete"](deepcopy(hf))
        except Exception as error:
            return int(isinstance(error, KeyError))
        return 2

    def sizes(self) -> list[tuple[str, str]]:
        """The settings that are read into Config, and their fields."""
        return list(self._names["hf_sizes"]())

    def tensors(self) -> set[str]:
        """The names of its tensors in checkpoints, with {} for numbers."""
        return {name for list_of in ("hf_tensors", "hf_layer_tensors") for _, name, _ in self._names[list_of]()}

    def buffers(self) -> tuple[str, ...]:
        """Ends of the names of tensors that checkpoints may have besides."""
        return tuple(self._names["hf_buffers"]())

    def config(self, hf: dict[str, Any]) -> SimpleNamespace:
        """What the sizes of a completed config.json make of Config."""
        return SimpleNamespace(**{field: hf.get(setting) for setting, field in self.sizes()})

    def structure(self, hf: dict[str, Any], shown: str) -> list[tuple[str, Any, str]]:
        """The settings that the package was woven for, their values, and what to select for another."""
        found, structure = [], self._names["hf_structure"](self.config(hf))
        try:
            found += structure
        except Exception as error:  # what follows from a size that is missing, or that no model has
            if all(hf.get(setting) is not None for setting, _ in self.sizes()):
                message = f"its sizes are impossible: {short(str(error))}"
                raise LoomError(message, shown, "Fix them.") from None
        return found

    def refusal(self, full: dict[str, Any], hf: dict[str, Any], stated: Mapping[str, object]) -> str:
        """Why the package would not take the sizes of a completed config.json, by the names that settings have there.

        Args:
            hf: config.json as it is.
            stated: setting -> the line that gives it, of those that config.json leaves out.
        """
        sizes = vars(self.config(full))
        named = {field: f"{setting} [{field}]" for setting, field in self.sizes()}
        named |= {field: f"{named[field]}, by {stated[it]}," for it, field in self.sizes() if it in stated}
        width, heads, head_size = (sizes.get(field) or 0 for field in ("width", "heads", "head_size"))
        if heads and head_size == width // heads and width % heads and "head_dim" not in hf:
            return f"{named['width']} {width}: must be a multiple of {named['heads']} {heads}"
        reason = self._refusal(sizes)
        if reason:  # in fields that hold any number, whole ones are refused by the bounds of whole numbers
            floats = {it.name for it in fields(self._names["Config"]) if it.type is float}
            reason = self._refusal({it: float(x) if it in floats else x for it, x in sizes.items()}) or reason
        lines = [(re.findall(r"--([\w-]+)", line), line) for line in reason.splitlines()]
        of_settings = [line for flags, line in lines if flags and flags[0].replace("-", "_") in named]
        return re.sub(
            r"--([\w-]+)", lambda it: named.get(it[1].replace("-", "_"), it[0]), "\n".join(of_settings) or reason
        )

    def _refusal(self, sizes: dict[str, Any]) -> str:
        try:
            config = self._names["Config"](**sizes)
            fitting = {"sequence_length": min(config.sequence_length, config.context_length)}
            self._names["check_config"](replace(config, **fitting))
        except Exception as error:  # any other is that of a package which has no such check
            return str(error) if type(error).__name__ == "InputError" else ""
        return ""


def _is_own(node: ast.stmt) -> bool:
    """Whether it needs no other package, and no other file of this one."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").partition(".")[0] in sys.stdlib_module_names
    return not isinstance(node, ast.Import) or all(name.name in sys.stdlib_module_names for name in node.names)


def _is_plain(node: ast.stmt) -> bool:
    """A function, a value that is written out, or a module of Python's library."""
    if isinstance(node, ast.Import):
        return all(name.name in sys.stdlib_module_names for name in node.names)
    if isinstance(node, ast.Assign):
        try:
            ast.literal_eval(node.value)
        except ValueError:
            return False
        return True
    return isinstance(node, ast.FunctionDef) and not node.decorator_list
