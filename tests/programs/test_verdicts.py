"""The verdicts of gen diff --against on some mutations; benchmarks/diff_verdicts.py tries all of them."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen

from .mutations import MUTATIONS, find_problems, judge_package, make_workplace, mutate

pytest.importorskip("jax")
pytestmark = pytest.mark.slow
CHOSEN = {
    *("comment", "local renamed", "lines reordered", "dead line", "a test", "sum commuted", "sign", "dropped cast"),
    *("parameter renamed", "axes of a parameter", "default of a size", "what a policy keeps", "code on the host"),
    *("rate late in a run", "bound of a norm", "steps of an engine", "share of the steps", "penalty of a draw"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Returns package -> workplace."""
    packages = {mutation.package for mutation in MUTATIONS if mutation.name in CHOSEN}
    return {name: make_workplace(tmp_path_factory.mktemp(name) / "work", name) for name in packages}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_verdict(name, places, tmp_path):
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    shutil.copytree(places[mutation.package], tmp_path / "work")
    mutate(tmp_path / "work", mutation)
    report = judge_package(tmp_path / "work")
    assert not find_problems(mutation, report)
    assert f"fragments/{mutation.fragment}.py" in report.causes


def test_command(places, tmp_path, monkeypatch):
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == "sign")
    shutil.copytree(places[mutation.package], tmp_path / "work")
    mutate(tmp_path / "work", mutation)
    monkeypatch.setattr("generator.disk.project.builtin_root", lambda: tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    result = CliRunner().invoke(gen, ["diff", "--against", "HEAD", "--json"])
    assert result.exit_code == 1, result.output
    package = json.loads(result.stdout)["packages"][0]
    assert package["name"] == "llama2_cpu" and package["differs"]
    training = next(finding for finding in package["findings"] if finding["entry"] == "training step")
    assert training["verdict"] == "other numbers" and training["numbers"]["gradients"] > 0.01
