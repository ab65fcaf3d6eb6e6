"""gen points: every join point of the library with its place."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen
from generator.commands.points import list_points
from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weave.points import find_points

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARY = Library.read((REPOSITORY,))


def test_each_point_that_a_fragment_writes_is_listed_where_it_stands():
    written = {
        (match[2], f"{path}:{text[: match.start()].count(chr(10)) + 1}", bool(match[1]))
        for path, text in LIBRARY.files.items()
        if path.startswith("fragments/")
        for match in re.finditer(r'^ +(with )?point\(\s*"([^"]+)"', text, re.MULTILINE)
    }
    assert len(written) > 100
    assert {(entry["name"], entry["at"], entry["wraps"]) for entry in list_points(LIBRARY)} == written


def test_what_it_shows_and_who_splices():
    (entry,) = [entry for entry in list_points(LIBRARY, "qwen3") if entry["name"] == "Attention.heads"]
    assert entry["fragment"] == "model/attention" and entry["shows"] == ["q", "k", "v"]
    assert {"model/rope", "model/qk_norm"} <= {splice["fragment"] for splice in entry["splices"]}
    for splice in entry["splices"]:
        path, line = splice["at"].split(":")
        assert LIBRARY.files[path].split("\n")[int(line) - 1].startswith(("@splice", "def _("))


def test_a_point_shows_the_sizes_of_its_host():
    """Else a splice reads them from the config again, under names that the host has."""
    hidden = []
    for point in (
        point
        for fragment in LIBRARY.everything
        if fragment.folder != "tests"
        for definition in fragment.definitions
        for point in find_points(definition.name, definition.text).values()
        if point.hosts
    ):
        nodes = [*ast.walk(point.hosts[-1])]
        looped = {n for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
        names = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n not in looped]
        sizes = {n.id for n in names if re.fullmatch("[A-Z]", n.id) and n.lineno < point.statement.lineno}
        hidden += [(point.where, name) for name in sizes - {*point.shown, *point.named}]
    assert hidden == []


def test_the_branch_of_a_splice_that_has_other_statements():
    (entry,) = [entry for entry in list_points(LIBRARY, "llama2") if entry["name"] == "Attention.attend"]
    instead = {splice["fragment"]: splice["instead"] for splice in entry["splices"]}
    assert instead["pages/pages"] == ["Attention.in_pages", "Attention.cached"]
    assert instead["parallel/sequence_parallel"] == []


def test_an_architecture_has_the_points_of_what_it_selects_on_any_target():
    llama = list_points(LIBRARY, "llama2")
    kernels = {entry["fragment"] for entry in llama if entry["fragment"].startswith(("kernels/", "attention/"))}
    assert kernels >= {"attention/attend_tiles", "kernels/attend_splash"}  # of cpu, and of tpu
    assert "MixtureOfExperts.parameters" not in {entry["name"] for entry in llama}
    assert "MixtureOfExperts.parameters" in {entry["name"] for entry in list_points(LIBRARY, "deepseek_v3")}


def test_unknown_architecture():
    with pytest.raises(LoomError, match="unknown architecture 'lama'"):
        list_points(LIBRARY, "lama")


def test_command(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    found = json.loads(CliRunner().invoke(gen, ["points", "--json"]).stdout)
    assert found == list_points(LIBRARY)
    lines = CliRunner().invoke(gen, ["points", "--architecture", "qwen3"]).stdout.split("\n")
    (line,) = [line for line in lines if line.startswith("  Attention.heads ")]
    assert any("  pages/pages (or Attention.in_pages, Attention.cached), " in line for line in lines)
    assert re.fullmatch(r"  Attention\.heads +fragments/model/attention\.py:\d+ +q, k, v +model/\w+, model/\w+", line)
