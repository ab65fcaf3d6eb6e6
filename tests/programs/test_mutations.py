"""Each fault that mutations put into the sources still stands where they look for it."""

from __future__ import annotations

import runpy
from pathlib import Path

from .mutations import MUTATIONS

ROOT = Path(__file__).parents[2]


def test_those_of_verdicts():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 40
    for mutation in MUTATIONS:
        text = (ROOT / "fragments" / f"{mutation.fragment}.py").read_text()
        assert all(old in text for old in mutation.edits[:1]), mutation.name


def test_those_of_tests():
    mutations = runpy.run_path(str(ROOT / "benchmarks/mutations.py"))["MUTATIONS"]
    assert len(mutations) >= 50
    for mutation in mutations:
        assert (ROOT / mutation.path).read_text().count(mutation.old) == 1, mutation
