"""Cases of which `make test` runs some and `make test-all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], *short: Any) -> list[Any]:
    """The cases as parameters of a test, all but those of `short` marked slow."""
    cases = list(cases)
    assert all(case in cases for case in short), short
    return [case if case in short else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
