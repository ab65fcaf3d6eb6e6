"""gen diff --against: what is said, without tracing; tests/programs has the programs."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from generator.disk.cache import cache_folder, load, prune, store
from generator.programs.verdicts import ENTRIES

ROPE = "fragments/model/rope.py"


def git(folder: Path, *words: str) -> str:
    settings = "-c", "user.name=a", "-c", "user.email=a@b.c"
    return subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(workshop, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (workshop.root / "gen.toml").write_text("")
    workshop.list_packages("llama_cpu", "plain_cpu")
    workshop.run("build", "--all")
    git(workshop.root, "init", "-q")
    git(workshop.root, "add", ".")
    git(workshop.root, "commit", "-qm", "first")
    return workshop


def change(workshop, path: str, old: str, new: str) -> None:
    text = (workshop.builtin / path).read_text()
    assert old in text
    (workshop.builtin / path).write_text(text.replace(old, new))


def reports(workshop, code: int, *words: str) -> dict:
    result = workshop.run("diff", "--against", *(words or ("HEAD",)), "--json", code=code)
    return {package["name"]: package for package in json.loads(result.stdout)["packages"]}


def verdicts(report: dict) -> set[str]:
    return {finding["verdict"] for finding in report["findings"]}


def test_nothing_changed(repository):
    found = reports(repository, 0)
    assert list(found) == ["llama_cpu", "plain_cpu"]
    assert [finding["entry"] for finding in found["llama_cpu"]["findings"]] == list(ENTRIES)
    assert verdicts(found["llama_cpu"]) == {"same text"} and not found["llama_cpu"]["files"]


def test_a_comment_is_the_same_program(repository):
    change(repository, ROPE, "    return x", "    # turned\n    return x")
    found = reports(repository, 0)
    assert verdicts(found["llama_cpu"]) == {"same program"}
    assert found["llama_cpu"]["files"] == ["model.py"] and found["llama_cpu"]["causes"] == {ROPE: [8]}
    assert verdicts(found["plain_cpu"]) == {"same text"}, "it does not select the fragment"
    printed = repository.run("diff", "--against", "HEAD").stdout
    assert printed.startswith(
        "same program: all entry points of 1 package (llama_cpu)\n  the same bytecode\n  fragments/model/rope.py:8\n\n"
        "same text: all entry points of 1 package (plain_cpu)\n\n"
    )


def test_equal_findings_are_told_once(repository):
    change(repository, "fragments/train/loop.py", "    for", "    # all\n    for")
    printed = repository.run("diff", "--against", "HEAD").stdout
    assert printed.startswith(
        "same program: all entry points of 2 packages (llama_cpu, plain_cpu)\n  the same bytecode\n"
    )
    assert "2 packages, 2 with another text; no package is another program\n" in printed
    row = "| same program | all entry points | 2 packages (llama_cpu, plain_cpu) | the same bytecode | fragments/train/loop.py:5 |"
    assert row in repository.run("diff", "--against", "HEAD", "--markdown").stdout


def test_nothing_changed_weaves_nothing(repository):
    """The locks at the revision say what weaving gives now, but not one that a hand changed."""
    assert "weaves" not in repository.run("diff", "--against", "HEAD").stderr
    lock = repository.generated / "llama_cpu/gen.lock"
    lock.write_text(lock.read_text().replace('"version"', '"Version"'))
    git(repository.root, "commit", "-qam", "an edit")
    result = repository.run("diff", "--against", "HEAD")
    assert "weaves 1 package" in result.stderr and "0 with another text" in result.stdout


def test_of_one_package(repository):
    change(repository, "fragments/train/loop.py", "    for", "    # all\n    for")
    assert list(reports(repository, 0, "HEAD", "--package", "plain_cpu")) == ["plain_cpu"]
    error = repository.run("diff", "--against", "HEAD", "--package", "plane_cpu", code=2).stderr
    assert "there is no package 'plane_cpu', nor was at HEAD" in error and "plain_cpu" in error
    assert "--package needs --against" in repository.run("diff", "--package", "plain_cpu", code=2).stderr


def test_a_parameter_that_is_renamed_is_not_known_to_be_the_same(repository):
    change(repository, ROPE, "angles", "angle")
    assert verdicts(reports(repository, 1)["llama_cpu"]) == {"undecided"}


def test_code_that_cannot_be_traced_is_undecided(repository):
    """These packages have no config, so tracing says why it could not be done."""
    change(repository, ROPE, "x * angles", "x + angles")
    found = reports(repository, 1)["llama_cpu"]
    assert verdicts(found) == {"undecided"}
    assert "No module named 'llama_cpu.config'" in found["findings"][0]["detail"]


def test_without_jax_text_and_bytecode_are_compared(repository, monkeypatch):
    monkeypatch.setattr("generator.programs.verdicts.LIBRARIES", ("no_such_library",))
    change(repository, ROPE, "x * angles", "x + angles")
    found = reports(repository, 1)
    assert verdicts(found["llama_cpu"]) == {"undecided"} and verdicts(found["plain_cpu"]) == {"same text"}
    assert "pip install -e '.[packages,serve]'" in found["llama_cpu"]["findings"][0]["detail"]


def test_against_what_git_has_and_not_what_is_on_disk(repository):
    (repository.generated / "llama_cpu/model.py").write_text("edited\n")
    assert verdicts(reports(repository, 0)["llama_cpu"]) == {"same text"}
    git(repository.root, "commit", "-qam", "an edit")
    assert reports(repository, 1)["llama_cpu"]["files"] == ["model.py"]
    assert verdicts(reports(repository, 0, "HEAD~1")["llama_cpu"]) == {"same text"}


def test_packages_that_one_side_has(repository):
    repository.list_packages("llama_cpu", "llama_gpu")
    found = reports(repository, 1)
    assert found["llama_gpu"]["findings"][0]["detail"] == "is new"
    assert found["plain_cpu"]["findings"][0]["detail"] == "is no longer made"
    assert verdicts(found["llama_gpu"]) == verdicts(found["plain_cpu"]) == {"other interface"}


def test_from_a_folder_below(repository, monkeypatch):
    monkeypatch.chdir(repository.generated / "llama_cpu")
    assert verdicts(reports(repository, 0)["llama_cpu"]) == {"same text"}


def test_mistakes(repository, tmp_path, monkeypatch):
    error = repository.run("diff", "--against", "nowhere", code=2).stderr
    assert "there is no revision 'nowhere'" in error and "Traceback" not in error
    assert "no revision '--all'" in repository.run("diff", "--against", "--all", code=2).stderr
    assert "takes no packages" in repository.run("diff", "a", "b", "--against", "HEAD", code=2).stderr
    assert "--markdown needs --against" in repository.run("diff", "--markdown", code=2).stderr
    change(repository, "templates/architectures/llama.toml", "model/rope", "model/ropes")
    result = repository.run("diff", "--against", "HEAD", code=2)
    assert "error: templates/architectures/llama.toml: unknown fragment 'model/ropes'" in result.stderr
    assert "plain_cpu" in result.stdout, "the others are compared"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in repository.run("diff", "--against", "HEAD", code=2).stderr


def test_no_repository(workshop):
    workshop.build("llama_cpu")
    assert "is in no git repository" in workshop.run("diff", "--against", "HEAD", code=2).stderr


def test_second_time_weaves_nothing(repository, monkeypatch):
    change(repository, ROPE, "    return x", "    # turned\n    return x")
    first = repository.run("diff", "--against", "HEAD").stdout
    monkeypatch.setattr("generator.commands.packages.weave_package", None)
    assert repository.run("diff", "--against", "HEAD").stdout == first


class TestCache:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    @pytest.mark.parametrize("damage", [b"", b"half", b"0" * 64 + b"\n{}"])
    def test_what_is_damaged_is_not_believed(self, damage):
        store("facts", "a", {"x": 1})
        assert load("facts", "a") == {"x": 1}
        whole = (cache_folder() / "facts/a").read_bytes()
        (cache_folder() / "facts/a").write_bytes(damage or whole[:-3])
        assert load("facts", "a") is None

    def test_many_at_a_time(self):
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda n: (store("facts", "a", [n] * 10_000), load("facts", "a"))[1], range(200))
            assert all(len(set(value)) == 1 for value in found), "never half of one"
        assert [path.name for path in (cache_folder() / "facts").iterdir()] == ["a"]

    def test_a_folder_that_may_not_be_written_is_no_error(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        store("facts", "a", 1)
        assert load("facts", "a") is None
        prune()

    def test_the_oldest_go(self, monkeypatch):
        monkeypatch.setattr("generator.disk.cache.MOST_BYTES", 0)
        store("facts", "a", 1)
        prune()
        assert load("facts", "a") is None
