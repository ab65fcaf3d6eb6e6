"""For each family: the configurations of transformers that its woven packages are compared with, in families.yaml."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Case:
    """One random checkpoint of a family.

    Attributes:
        settings: of transformers' configuration, on top of the family's own.
        follows: in rope_parameters: what an export writes out, and the reference lets follow from other settings.
        atol: how far logits may be off; more than 1e-4 only where the reference computes a step in lower precision.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    follows: dict[str, Any] = field(default_factory=dict)
    atol: float = 1e-4


@dataclass(frozen=True)
class Family:
    """An architecture of ours, its model and configuration in transformers, and the cases.

    Attributes:
        settings: of transformers' configuration, in every case.
        published: preset -> parameters in billions as its authors give them, and where they say so.
        respelled: settings that an export writes in another way, without the config.json that was imported.
        serves: whether the model can have the part serve.
        length: of the compared sequences: longer than windows, chunks and original contexts.
    """

    architecture: str
    model: str
    config: str
    settings: dict[str, Any]
    cases: dict[str, Case]
    published: dict[str, tuple[float, str]]
    respelled: tuple[str, ...] = ()
    serves: bool = True
    length: int = 32


_TABLE = yaml.safe_load(Path(__file__).with_name("families.yaml").read_text())
SMALL: dict[str, Any] = _TABLE.pop("base")


def _family(name: str, table: dict[str, Any]) -> Family:
    settings = table.get("base", SMALL) | table.pop("settings", {})
    cases = {key: Case(**it) if it.keys() & {"follows", "atol"} else Case(it) for key, it in table.pop("cases").items()}
    table.pop("base", None)
    return Family(**{"architecture": name} | table, settings=settings, cases=cases)


# repository -> its config.json, as published/README.md tells
PUBLISHED: dict[str, dict[str, Any]] = {
    repository: entry["config"]
    for path in sorted(Path(__file__).with_name("published").glob("*.json"))
    for repository, entry in json.loads(path.read_text()).items()
}
FAMILIES = {name: _family(name, table) for name, table in _TABLE.items()}
