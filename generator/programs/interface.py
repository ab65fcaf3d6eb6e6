"""What people and programs see of a package: settings, presets, exports, the flags of its command lines.

Runs in a process that traces: it imports the package.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock


class Asked(BaseException):
    """Ends a command where it has said what it takes; no `except Exception` catches it."""

    def __init__(self, takes: Any):
        self.takes = takes


def interface(name: str, folder: Path) -> dict[str, Any]:
    """The facts, as JSON has them. Help is text, and no part of them."""
    config = importlib.import_module(f"{name}.config")
    package, seen = importlib.import_module(name), dict[str, Any]()
    commands = {}
    for path in sorted(folder.glob("*.py")):
        if "tyro." in (text := path.read_text(encoding="utf-8")) and "__main__" in text:
            commands[path.stem] = _command(importlib.import_module(f"{name}.{path.stem}"), seen)
    return {
        "fields": _fields(config.Config, seen),
        "presets": {preset: _values(value) for preset, value in config.PRESETS.items()},
        "exports": {export: _place(getattr(package, export)) for export in sorted(getattr(package, "__all__", []))},
        "commands": commands,
        "classes": sorted(seen),
    }


def _place(value: Any) -> str:
    """Where in the package a class or function is; of other values the type."""
    module = getattr(value, "__module__", "").partition(".")[2]
    return f"{module}.{value.__qualname__}" if hasattr(value, "__qualname__") else type(value).__name__


def _values(settings: Any) -> dict[str, str]:
    return {field.name: repr(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def _command(module: ModuleType, seen: dict[str, Any]) -> Any:
    """The arguments of a module's command: what it gives tyro."""
    import tyro

    def ask(takes: Any, **_: Any) -> None:
        raise Asked(takes)

    with mock.patch.object(tyro, "cli", ask), mock.patch.object(tyro.extras, "subcommand_cli_from_dict", ask):
        try:
            if callable(getattr(module, "main", None)) and not inspect.signature(module.main).parameters:
                module.main()
            elif callable(getattr(module, "main", None)):
                raise Asked(module.main)
        except Asked as asked:
            takes = asked.takes if isinstance(asked.takes, dict) else {"": asked.takes}
            return {word: _arguments(value, seen) for word, value in takes.items()}
    raise RuntimeError(f"{module.__name__} does not say what its command takes")


def _arguments(value: Any, seen: dict[str, Any]) -> Any:
    if dataclasses.is_dataclass(value):
        return _fields(value, seen)
    found = inspect.signature(value, eval_str=True).parameters.values()
    return {p.name: _type(p.annotation, seen) + _default(p.default, inspect.Parameter.empty) for p in found}


def _fields(value: Any, seen: dict[str, Any]) -> dict[str, Any]:
    seen[value.__name__] = None
    types, result = typing.get_type_hints(value, include_extras=True), {}
    for field in dataclasses.fields(value):
        made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        result[field.name] = _type(types[field.name], seen) + _default(made, dataclasses.MISSING)
    return result


def _default(value: Any, none: Any) -> list[str]:
    return [] if value is none else [repr(value)]


def _type(annotation: Any, seen: dict[str, Any]) -> list[Any]:
    """A type as text; of a dataclass its fields, as they are flags too."""
    bare = typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
    if dataclasses.is_dataclass(bare) and isinstance(bare, type):
        return [bare.__name__, _fields(bare, seen)]
    modules = {annotation.__module__.partition(".")[0]} if isinstance(annotation, type) else set()
    return [annotation.__qualname__ if modules & set(sys.modules) else str(annotation)]
