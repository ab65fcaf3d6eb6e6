"""The page of what is measured has the numbers of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/modularity.md").read_text()
FEATURES = re.findall(r"^\| (\S+/\S+) \|", PAGE.partition("**What a feature touches**")[2], re.MULTILINE)


def printed(monkeypatch, *features: str) -> dict[str, str]:
    """The tables that gen loc prints, by their titles."""
    monkeypatch.chdir(ROOT)
    options = [word for feature in features for word in ("--feature", feature)]
    said = CliRunner().invoke(gen, ["loc", "--markdown", *options], catch_exceptions=False).output
    _, *parts = re.split(r"^\*\*(.+)\*\*$", said, flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def test_tables_are_those_of_gen_loc(monkeypatch):
    for title, table in printed(monkeypatch).items():
        assert title == "What a fragment makes" or table in PAGE, f"{title}: run `make modularity`"


@pytest.mark.slow
def test_the_table_of_features_is_that_of_gen_loc(monkeypatch):
    assert FEATURES
    assert printed(monkeypatch, *FEATURES)["What a feature touches"] in PAGE, "run `make features`"
