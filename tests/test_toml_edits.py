"""A name is added to a list of a TOML file that people write; all else in it stays."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

import pytest

from generator.recipe.toml_edits import add_to_list

FILES = sorted((Path(__file__).parents[1] / "templates/architectures").glob("*.toml"))


@pytest.mark.parametrize("table", [(), ("targets", "tpu"), ("targets", "new")], ids="-".join)
def test_every_architecture_keeps_its_lines(table):
    """A list is made longer in its line or by one, or spread over lines; a new one comes with its table."""
    assert len(FILES) > 20
    for file in FILES:
        before = file.read_text()
        after = add_to_list(before, file.name, table, "fragments", "model/mine")
        changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
        removed = [line for line in changed if line[0] == "-"]
        assert len(removed) <= 1 and all("fragments" in line or "/" in line for line in removed), (file, changed)
        assert len(max(after.splitlines(), key=len)) <= max(120, len(max(before.splitlines(), key=len)))
        inner = tomllib.loads(after)
        for word in table:
            inner = inner[word]
        assert inner["fragments"][-1] == "model/mine"


@pytest.mark.parametrize(
    ("before", "table", "after"),
    [
        ("x = 1\n\n# of s\n[s]\ny = 2  # two\n\n# of t\n[t]\n", (), 'x = 1\nfragments = ["a"]\n\n# of s\n[s]\n'),
        ("[s]\ny = 2  # two\n\n# of t\n[t]\n", ("s",), '[s]\ny = 2  # two\nfragments = ["a"]\n\n# of t\n[t]\n'),
        ("s.y = 2\n", ("s",), 's.y = 2\ns.fragments = ["a"]\n'),
        ("s = {y = 2}\n", ("s",), 's = {y = 2,fragments = ["a"]}\n'),
        ("[s]\n", ("s", "t"), '[s]\n\n[s.t]\nfragments = ["a"]\n'),
        ("x = 1", (), 'x = 1\nfragments = ["a"]\n'),
        ('fragments = [  # three\n  "b", "c",  # two\n  "d"  # one\n]\n', (), '"c",  # two\n  "d",  # one\n  "a"\n]\n'),
    ],
)
def test_comments_stay_where_they_are(before, table, after):
    assert after in add_to_list(before, "x.toml", table, "fragments", "a")
