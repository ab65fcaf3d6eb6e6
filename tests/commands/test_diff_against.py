"""gen diff --against without tracing: reports, exit codes and the cache. tests/programs has the verdicts on programs."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from generator.disk.cache import cache_folder, load, prune, store
from generator.programs.verdicts import ENTRIES

ROPE, LOOP = "fragments/model/rope.py", "fragments/train/loop.py"


class Project:
    """A workshop in git, with two packages that are committed."""

    def __init__(self, workshop):
        self.workshop, self.run = workshop, workshop.run
        (workshop.root / "gen.toml").write_text("")
        workshop.list_packages("llama_cpu", "plain_cpu")
        self.run("build", "--all")
        self.git("init", "-q")
        self.git("add", ".")
        self.commit()

    def git(self, *words: str) -> None:
        settings = "-c", "user.name=a", "-c", "user.email=a@b.c"
        subprocess.run(["git", *settings, *words], cwd=self.workshop.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("commit", "-qam", "a change")

    def change(self, path: str, old: str, new: str) -> None:
        text = (self.workshop.builtin / path).read_text()
        assert old in text
        (self.workshop.builtin / path).write_text(text.replace(old, new))

    def diff(self, *words: str, revision: str = "HEAD", code: int = 0):
        return self.run("diff", "--against", revision, *words, code=code)

    def reports(self, code: int, *words: str, revision: str = "HEAD") -> dict[str, dict]:
        packages = json.loads(self.diff("--json", *words, revision=revision, code=code).stdout)["packages"]
        return {package["name"]: package for package in packages}


@pytest.fixture
def project(workshop, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Project(workshop)


def verdicts(report: dict) -> set[str]:
    return {finding["verdict"] for finding in report["findings"]}


def test_nothing_changed(project, monkeypatch):
    """The locks at the revision prove it, so nothing is woven; a lock that a hand changed proves nothing."""
    monkeypatch.chdir(project.workshop.generated / "llama_cpu")
    reports = project.reports(0)
    assert list(reports) == ["llama_cpu", "plain_cpu"]
    assert [finding["entry"] for finding in reports["llama_cpu"]["findings"]] == list(ENTRIES)
    assert verdicts(reports["llama_cpu"]) == {"same text"} and not reports["llama_cpu"]["files"]
    assert "weaves" not in project.diff().stderr
    lock = project.workshop.generated / "llama_cpu/gen.lock"
    lock.write_text(lock.read_text().replace('"version"', '"Version"'))
    project.commit()
    result = project.diff()
    assert "weaves 1 package" in result.stderr and "0 with another text" in result.stdout


def test_a_comment_is_the_same_program(project, monkeypatch):
    project.change(ROPE, "    return x", "    # turned\n    return x")
    reports = project.reports(0)
    assert verdicts(reports["llama_cpu"]) == {"same program"}
    assert reports["llama_cpu"]["files"] == ["model.py"] and reports["llama_cpu"]["causes"] == {ROPE: [8]}
    assert verdicts(reports["plain_cpu"]) == {"same text"}, "it does not select the fragment"
    printed = project.diff().stdout
    assert printed.startswith(
        "same program: all entry points of 1 package (llama_cpu)\n  the same bytecode\n  fragments/model/rope.py:8\n\n"
        "same text: all entry points of 1 package (plain_cpu)\n\n"
    )
    monkeypatch.setattr("generator.commands.packages.weave_package", None)  # what was woven is cached
    assert project.diff().stdout == printed


def test_equal_verdicts_are_printed_once(project):
    project.change(LOOP, "    for", "    # all\n    for")
    same = "same program", "all entry points", "2 packages (llama_cpu, plain_cpu)", "the same bytecode"
    printed = project.diff().stdout
    assert printed.startswith(f"{same[0]}: {same[1]} of {same[2]}\n  {same[3]}\n")
    assert "2 packages, 2 with another text; no package is another program\n" in printed
    assert f"| {' | '.join(same)} | {LOOP}:5 |" in project.diff("--markdown").stdout
    assert list(project.reports(0, "--package", "plain_cpu")) == ["plain_cpu"]


@pytest.mark.parametrize(
    ("old", "new", "libraries", "reason"),
    [
        ("angles", "angle", None, ""),  # callers may name a parameter
        ("x * angles", "x + angles", None, "No module named 'llama_cpu.config'"),  # so it cannot be traced
        ("x * angles", "x + angles", ("no_such_library",), "pip install -e '.[packages,serve]'"),
    ],
    ids=["parameter renamed", "no config", "no JAX"],
)
def test_undecided(project, monkeypatch, old, new, libraries, reason):
    if libraries:
        monkeypatch.setattr("generator.programs.verdicts.LIBRARIES", libraries)
    project.change(ROPE, old, new)
    reports = project.reports(1)
    assert verdicts(reports["llama_cpu"]) == {"undecided"} and verdicts(reports["plain_cpu"]) == {"same text"}
    assert reason in reports["llama_cpu"]["findings"][0]["detail"]


def test_what_git_has_counts_and_not_what_is_on_disk(project):
    (project.workshop.generated / "llama_cpu/model.py").write_text("edited\n")
    assert verdicts(project.reports(0)["llama_cpu"]) == {"same text"}
    project.commit()
    assert project.reports(1)["llama_cpu"]["files"] == ["model.py"]
    assert verdicts(project.reports(0, revision="HEAD~1")["llama_cpu"]) == {"same text"}


def test_packages_that_one_side_has(project):
    project.workshop.list_packages("llama_cpu", "llama_gpu")
    reports = project.reports(1)
    assert reports["llama_gpu"]["findings"][0]["detail"] == "is new"
    assert reports["plain_cpu"]["findings"][0]["detail"] == "is no longer made"
    assert verdicts(reports["llama_gpu"]) == verdicts(reports["plain_cpu"]) == {"other interface"}


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("--against", "nowhere"), ["there is no revision 'nowhere'"]),
        (("--against", "--all"), ["no revision '--all'"]),
        (("a", "b", "--against", "HEAD"), ["takes no packages"]),
        (("--markdown",), ["--markdown needs --against"]),
        (("--package", "plain_cpu"), ["--package needs --against"]),
        (("--against", "HEAD", "--package", "plane_cpu"), ["no package 'plane_cpu', nor was at HEAD", "plain_cpu"]),
    ],
)
def test_mistakes(project, words, messages):
    error = project.run("diff", *words, code=2).stderr
    assert all(message in error for message in messages) and "Traceback" not in error


def test_package_that_cannot_be_woven(project, tmp_path, monkeypatch):
    project.change("templates/architectures/llama.toml", "model/rope", "model/ropes")
    result = project.diff(code=2)
    assert "error: templates/architectures/llama.toml: unknown fragment 'model/ropes'" in result.stderr
    assert "plain_cpu" in result.stdout, "the others are compared"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in project.diff(code=2).stderr


def test_no_repository(workshop):
    workshop.build("llama_cpu")
    assert "is in no git repository" in workshop.run("diff", "--against", "HEAD", code=2).stderr


class TestCache:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    @pytest.mark.parametrize("damage", [b"", b"half", b"0" * 64 + b"\n{}"])
    def test_damaged_entry_is_not_used(self, damage):
        store("facts", "a", {"x": 1})
        assert load("facts", "a") == {"x": 1}
        whole = (cache_folder() / "facts/a").read_bytes()
        (cache_folder() / "facts/a").write_bytes(damage or whole[:-3])
        assert load("facts", "a") is None

    def test_several_writers(self):
        with ThreadPoolExecutor(8) as pool:
            values = pool.map(lambda n: (store("facts", "a", [n] * 10_000), load("facts", "a"))[1], range(200))
            assert all(len(set(value)) == 1 for value in values), "never half of one"
        assert [path.name for path in (cache_folder() / "facts").iterdir()] == ["a"]

    def test_folder_that_may_not_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        store("facts", "a", 1)
        assert load("facts", "a") is None
        prune()

    def test_the_oldest_entries_go(self, monkeypatch):
        monkeypatch.setattr("generator.disk.cache.MOST_BYTES", 0)
        store("facts", "a", 1)
        prune()
        assert load("facts", "a") is None
