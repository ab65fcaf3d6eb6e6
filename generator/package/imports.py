"""The import block of a file: this module alone owns it."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from generator.code.traced import Traced
from generator.errors import LoomError
from generator.language.parts import Import


def import_block(imports: Iterable[Import]) -> Traced:
    """Returns the sorted import statements: standard library, other packages, this package.

    Args:
        imports: what the file's definitions use, in any order; a name may come several times.
    """
    chosen: dict[tuple[str, str, str], Import] = {}
    bound: dict[str, Import] = {}
    for item in imports:
        chosen.setdefault((item.module, item.name, item.alias), item)
        other = bound.setdefault(item.alias, item)
        same = (other.module, other.name) == (item.module, item.name)
        if not same and (item.name or other.name or item.alias != item.module.split(".")[0]):
            raise LoomError(
                f"{item.alias} is imported from {item.module} here and from {other.module} at {other.origin}",
                str(item.origin),
                "Import one of them under another name.",
            )
    groups: dict[int, list[Traced]] = {0: [], 1: [], 2: []}
    plain = sorted((i for i in chosen.values() if not i.name), key=lambda i: (i.module, i.alias))
    for item in plain:
        renamed = f" as {item.alias}" if item.alias != item.module.split(".")[0] else ""
        groups[_group(item.module)].append(Traced.insert(f"import {item.module}{renamed}\n", item.origin))
    modules = sorted({i.module for i in chosen.values() if i.name}, key=_relative_last)
    for module in modules:
        names = sorted(
            (i for i in chosen.values() if i.name and i.module == module), key=lambda i: reading_case(i.name)
        )
        groups[_group(module)].append(_from(module, names))
    parts: list[Traced] = []
    for group in groups.values():
        if group and parts:
            parts.append(Traced.insert("\n", parts[-1].pieces[-1].origin))
        parts += group
    return Traced.join(parts)


def _from(module: str, names: list[Import]) -> Traced:
    parts = [Traced.insert(f"from {module} import ", names[0].origin)]
    for number, item in enumerate(names):
        renamed = f" as {item.alias}" if item.alias != item.name else ""
        comma = ", " if number + 1 < len(names) else "\n"
        parts.append(Traced.insert(f"{item.name}{renamed}{comma}", item.origin))
    return Traced.join(parts)


def reading_case(name: str) -> tuple[int, str, str]:
    """Constants, then classes, then the rest: the order that ruff and isort keep."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name.lower(), name


def _relative_last(module: str) -> tuple[int, str]:
    dots = len(module) - len(module.lstrip("."))
    return -dots, module


def _group(module: str) -> int:
    if module.startswith("."):
        return 2
    return 0 if module.split(".")[0] in sys.stdlib_module_names else 1
