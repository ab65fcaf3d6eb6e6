"""Numbers of settings have bounds, and the generator reads them as a package does."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import get_args

from generator.language.numbers import NUMBERS
from generator.recipe.library import Library

ROOT = Path(__file__).resolve().parents[1]


def test_every_number_has_bounds():
    members = [member for fragment in Library.read([ROOT]).everything for member in fragment.fields]
    numbers = [member for member in members if member.kind in ("int", "float")]
    assert len(numbers) > 100
    assert not [f"{member.fragment}: {member.name}" for member in numbers if not member.number]


def test_named_numbers_are_those_of_packages():
    defined = runpy.run_path(str(ROOT / "fragments/config/numbers.py"))
    assert {name: get_args(defined[name]) for name in NUMBERS} == NUMBERS
