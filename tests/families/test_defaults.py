"""What a config.json leaves out means what it means to transformers, for every family and every setting.

A package reads each published configuration without one of its settings, and without all; and then what transformers
writes for the same file, with every setting written out: structure and sizes are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
import transformers
from selected import mostly_slow

from families.cases import PUBLISHED
from families.weaving import LIBRARY
from generator.checkpoint.fit import follow_rules
from generator.checkpoint.readers import ConfigReader
from generator.commands.new import find_families
from generator.recipe.recipe import select

NO_STRUCTURE = {"architectures", "auto_map", "model_type", "quantization_config"}
FIRST: dict[str, dict[str, Any]] = {}  # model type -> the first of its published configurations
for hf in PUBLISHED.values():
    FIRST.setdefault(hf["model_type"], {name: hf[name] for name in hf if name not in NO_STRUCTURE})


def pairs(model_type: str, singly: bool) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A published config.json without one of its settings, without all, or with others; and as transformers writes it."""
    hf = FIRST[model_type]
    if "attn_temperature_tuning" in hf:  # released as 4, which transformers takes no more
        hf = hf | {"attn_temperature_tuning": True}
    doubled = {name: 2 * x if type(x) is int else x for name, x in hf.items() if not isinstance(x, list)}
    without_one = ({name: hf[name] for name in hf if name != left_out} for left_out in hf)
    for ours in [{}, *([doubled, *without_one] if singly else ())]:
        with suppress(Exception):  # of any class: what is left does not go together
            theirs = transformers.AutoConfig.for_model(
                model_type, **deepcopy(ours)
            ).to_dict()  # it changes tables in place
            theirs = json.loads(json.dumps({name: x for name, x in theirs.items() if x is not None}))
            yield ours | {"model_type": model_type}, theirs


@pytest.mark.parametrize("model_type", FIRST)
def test_a_package_takes_for_what_is_left_out_what_transformers_takes(model_type):
    family = find_families(LIBRARY, {"model_type": model_type}, "config.json")[0]
    package, compared = ConfigReader(select(family, "cpu", LIBRARY)), 0
    for ours, theirs in pairs(model_type, singly=True):
        ours, theirs = (package.complete(hf, "config.json") for hf in (ours, theirs))
        read = {name for name, _ in package.sizes()} | {name for name, *_ in package.structure(theirs, "config.json")}
        assert {name: ours.get(name) for name in read} == {name: theirs.get(name) for name in read}
        compared += 1
    assert compared > 10 and compared >= len(FIRST[model_type]) - 1  # exaone4's layers need the pattern that it states


@pytest.mark.parametrize("model_type", mostly_slow(FIRST, "llama", "qwen2"))
def test_nothing_but_a_model_type_is_enough(model_type):
    """For `gen new`, which chooses the structure that transformers takes."""

    def read(hf: dict[str, Any]) -> Any:
        family = find_families(LIBRARY, hf, "config.json")[0]
        fitted = follow_rules(LIBRARY, family, "cpu", hf, "mine", "config.json")
        assert not fitted.problems
        return fitted.sizes(), fitted.choice.tables()

    ours, theirs = next(pairs(model_type, singly=False))
    assert read(ours) == read(theirs)
