"""The functions of a woven huggingface.py that say what a config.json asks for, run without its package."""

from __future__ import annotations
import __future__

import ast
import sys
from types import SimpleNamespace
from typing import Any

from generator.errors import LoomError


class Readers:
    """What of a huggingface.py needs nothing but Python and its library.

    Attributes:
        mentioned: the settings that `complete` reads.
    """

    def __init__(self, text: str):
        plain = [node for node in ast.parse(text).body if _is_plain(node)]
        reading = [node for node in plain if isinstance(node, ast.Assign) or getattr(node, "name", "") == "complete"]
        constants = (node.value for top in reading for node in ast.walk(top) if isinstance(node, ast.Constant))
        self.mentioned = {value for value in constants if isinstance(value, str)}
        self._names: dict[str, Any] = {}
        module = ast.Module(plain, [])
        # annotations stay unevaluated: they name what is not imported here
        exec(compile(module, "huggingface.py", "exec", __future__.annotations.compiler_flag), self._names)

    def complete(self, hf: dict[str, Any], shown: str) -> dict[str, Any]:
        """config.json with the values of settings that are left out.

        Raises:
            LoomError: one that has none, or a value of another type than the package reads.
        """
        try:
            return self._names["complete"](dict(hf))
        except KeyError as setting:
            raise LoomError(f"the setting {setting} is missing", shown, "Give it.") from None
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
            raise LoomError(f"its settings cannot be read: {error}", shown, "Mend the value.") from None

    def sizes(self) -> list[tuple[str, str]]:
        """The settings that are read into Config, and their fields."""
        return list(self._names["hf_sizes"]())

    def config(self, hf: dict[str, Any]) -> SimpleNamespace:
        """What the sizes of a completed config.json make of Config."""
        return SimpleNamespace(**{field: hf.get(setting) for setting, field in self.sizes()})

    def structure(self, hf: dict[str, Any]) -> list[tuple[str, Any, str]]:
        """The settings that the package was woven for, their values, and what to select for another."""
        found, structure = [], self._names["hf_structure"](self.config(hf))
        try:
            found += structure
        except TypeError:  # what follows from a size that is missing
            if all(hf.get(setting) is not None for setting, _ in self.sizes()):
                raise
        return found


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
