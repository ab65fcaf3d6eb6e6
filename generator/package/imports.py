"""Makes imports between files of a package, and writes the import block of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby

from generator.code.traced import Origin, Traced
from generator.errors import LoomError
from generator.language.parts import Import


def write_imports(imports: Iterable[Import]) -> Traced:
    """Returns sorted import statements: of the standard library, of other packages, of this package.

    Args:
        imports: in any order, possibly repeated.
    """
    distinct: dict[tuple[str, str, str], Import] = {}
    bound: dict[str, Import] = {}
    for item in imports:
        distinct.setdefault((item.module, item.name, item.alias), item)
        other = bound.setdefault(item.alias, item)
        same = (other.module, other.name) == (item.module, item.name)
        if not same and (item.name or other.name or item.alias != item.module.split(".")[0]):
            raise LoomError(
                f"{item.alias} is imported from {item.module} here and from {other.module} at {other.origin}",
                str(item.origin),
                "Import one of them under another name.",
            )
    parts: list[Traced] = []
    for _, group in groupby(sorted(distinct.values(), key=_import_order), key=lambda item: _import_order(item)[0]):
        if parts:
            parts.append(Traced.insert("\n", parts[-1].pieces[-1].origin))
        for _, statement in groupby(group, key=lambda item: item.module if item.name else item):
            parts += _write_statement([*statement])
    return Traced.join(parts)


def _import_order(item: Import) -> tuple[int, bool, int, str, tuple[int, str, str]]:
    """Returns the sort key of an import: `import` before `from`, modules of this package from the outermost one."""
    dots = len(item.module) - len(item.module.lstrip("."))
    group = 2 if dots else 0 if item.module.split(".")[0] in sys.stdlib_module_names else 1
    return group, bool(item.name), -dots, item.module, name_order(item.name or item.alias)


def _write_statement(names: list[Import]) -> list[Traced]:
    """Returns one import statement, of names from one module or of one module."""
    first = names[0]
    if not first.name:
        renamed = f" as {first.alias}" if first.alias != first.module.split(".")[0] else ""
        return [Traced.insert(f"import {first.module}{renamed}\n", first.origin)]
    parts = [Traced.insert(f"from {first.module} import ", first.origin)]
    for item in names:
        renamed = f" as {item.alias}" if item.alias != item.name else ""
        end = "\n" if item is names[-1] else ", "
        parts.append(Traced.insert(f"{item.name}{renamed}{end}", item.origin))
    return parts


def name_order(name: str) -> tuple[int, str, str]:
    """Returns the sort key of a name, as in ruff and isort: constants, then classes, then the rest."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name.lower(), name


def make_import(file: str, other: str, key: str, origin: Origin) -> Import:
    """Returns the import, in `file`, of a definition of another file of the package."""
    folder, name = file[: file.rfind("/") + 1], key.split(":")[-1]
    if folder and other.startswith(folder):
        file, other = file.removeprefix(folder), other.removeprefix(folder)
    dots = "." * (1 + file.count("/"))
    return Import(dots + other.removesuffix(".py").replace("/", "."), name, name, origin)
