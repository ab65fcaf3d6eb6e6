"""What gen check believes of a lock: nothing that a merge, a copy or a hand has changed."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

BUILD = ("build", "llama", "--target=cpu")
EDIT = b"mine = 1\n"


@pytest.fixture
def built(workshop):
    """The workshop with a list of two packages, both built."""
    workshop.list_packages("llama_cpu", "plain_cpu")
    workshop.build("llama_cpu", "plain_cpu")
    return workshop


def change_lock(workshop, change, seal: bool = False) -> None:
    """Changes the table of a lock as a hand or a merge would; with `seal` as gen itself would write it."""
    path = workshop.generated / "llama_cpu/gen.lock"
    table = json.loads(path.read_text())
    change(table)
    if seal:
        del table["seal"]
        table["seal"] = sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    path.write_text(json.dumps(table, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def lose_line(workshop) -> None:
    change_lock(workshop, lambda table: table["outputs"].pop("model.py"))


def lose_line_and_file(workshop) -> None:
    lose_line(workshop)
    (workshop.generated / "llama_cpu/model.py").unlink()


def copy_another(workshop) -> None:
    workshop.remove("llama_cpu")
    shutil.copytree(workshop.generated / "plain_cpu", workshop.generated / "llama_cpu")


def edit(workshop, seal: bool = False) -> None:
    (workshop.generated / "llama_cpu/model.py").write_bytes(EDIT)
    change_lock(workshop, lambda table: table["outputs"].update({"model.py": sha256(EDIT).hexdigest()}), seal)


def forget_input(workshop) -> None:
    change_lock(workshop, lambda table: table["inputs"].pop("fragments/model/rope.py"))
    workshop.source("fragments/model/rope.py", '"""Rope."""\n\n\ndef rotate(x):\n    return x\n')


@pytest.mark.parametrize("damage", [lose_line, lose_line_and_file, copy_another, edit, forget_input])
def test_damaged_lock_owns_nothing_and_a_build_brings_all_back(built, damage):
    whole, model = built.tree("llama_cpu"), built.generated / "llama_cpu/model.py"
    damage(built)
    stdout = built.run("check", code=1).stdout
    assert "generated/llama_cpu/gen.lock: " in stdout and "rm " not in stdout
    model.write_bytes(EDIT)
    built.run(*BUILD, code=2)
    assert model.read_bytes() == EDIT
    built.run(*BUILD, "--force")
    built.run("check", "--full")
    assert built.tree("llama_cpu").keys() == whole.keys()


def test_lock_sealed_by_hand_is_seen_by_a_full_check(built):
    edit(built, seal=True)
    built.run("check")
    assert "generated/llama_cpu/model.py" in built.run("check", "--full", code=1).stdout
    assert "gen check --full" in (Path(__file__).parents[2] / ".ci/run").read_text()


class TestForeign:
    """What lies in generated/ and is neither gen's nor named as one's own."""

    FOREIGN = ("llama_cpu/mine.py", "llama_cpu/docs/notes.md", "other/model.py", "json.py", "llama_cpu_old/gen.lock")

    @pytest.mark.parametrize("path", FOREIGN)
    def test_is_told_until_it_is_named(self, built, path):
        place, packages = built.generated / path, built.generated / "packages.toml"
        place.parent.mkdir(exist_ok=True)
        place.write_text("mine\n")
        listed = path if path.startswith("llama_cpu/") else path.split("/")[0]
        (line,) = built.run("check", code=1).stdout.splitlines()
        assert f"foreign  generated/{listed}: " in line and f'own = ["{listed}"]' in line and "rm " not in line
        built.run("build", "--all", "--force")
        assert place.read_text() == "mine\n"
        packages.write_text(f'own = ["{listed}"]\n{packages.read_text()}')
        built.run("check")

    def test_linked_folder_is_and_caches_are_not(self, built):
        for path in "__pycache__/a.pyc", ".pytest_cache/x", "llama_cpu.egg-info/PKG-INFO", ".hidden.py":
            for folder in built.generated, built.generated / "llama_cpu":
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text("")
        built.run("check")
        (built.generated / "llama_cpu/data").symlink_to(built.root)
        assert "foreign  generated/llama_cpu/data: " in built.run("check", code=1).stdout

    @pytest.mark.parametrize(
        ("own", "message"),
        [
            ('["gone.md"]', "own names gone.md, which is not there"),
            ('["llama_cpu/model.py"]', "own names llama_cpu/model.py, which gen makes"),
            ('["llama_cpu/docs"]', "own names llama_cpu/docs, which gen makes"),
            ('["llama_cpu/gen.lock"]', "own names llama_cpu/gen.lock, which gen makes"),
            ('["llama_cpu"]', "own names llama_cpu, which gen makes"),
            ('["packages.toml"]', "own names packages.toml, which gen makes"),
            ('["../work"]', ":1: own: '../work' is not a path inside the folder"),
            ('[""]', ":1: own: '' is not a path inside the folder"),
            ('"llama_cpu"', ":1: own is 'llama_cpu', not a list"),
            ("[3]", ":1: own[0] is 3, not a string"),
        ],
    )
    def test_mistakes(self, built, own, message):
        path = built.generated / "packages.toml"
        path.write_text(f"own = {own}\n{path.read_text()}")
        stderr = built.run("check", code=2).stderr
        assert stderr.startswith("error: generated/packages.toml") and message in stderr
