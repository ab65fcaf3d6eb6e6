"""Packages with committed = false: git has only their locks, and every command treats them as it does others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from repository import findings

from generator.disk.lock import format_locks, parse_lock, parse_locks

LISTED = """
[[package]]
architecture = "one"
target = "any"

[[package]]
architecture = "two"
target = "any"
committed = false
"""
LOCKS = "generated/packages.lock"


@pytest.fixture
def lean(repository, tmp_path, monkeypatch):
    """A repository in which the second of two packages is not committed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository.write(".gitignore", "cache/\n")
    repository.write("generated/packages.toml", LISTED)
    repository.git("rm", "-rq", "generated/two_any")
    assert "two_any: lock written" in repository.run("build", "--all").stderr
    repository.commit("fewer files")
    return repository


def states(lean, *words, code=1):
    return [(one["state"], one["path"], one["reason"]) for one in findings(lean, *words, code=code)]


def test_build_all_writes_the_lock_and_what_git_ignores(lean):
    assert not (lean.root / "generated/two_any").exists() and "model.py" in lean.package("one_any")
    assert lean.read("generated/.gitignore") == "/two_any/\n"
    assert LOCKS in lean.git("ls-files") and not lean.git("status", "--porcelain")
    lock = lean.read(LOCKS)
    assert "as it should be" in lean.run("build", "--all").stdout
    lean.replace("fragments/model/tools.py", "return -x", "return 0 - x")
    dry = lean.run("build", "--all", "--dry-run").stdout
    assert "would write generated/packages.lock\n" in dry and "two_any/model.py" not in dry
    lean.run("build", "--all")
    assert not (lean.root / "generated/two_any").exists() and lean.read(LOCKS) != lock
    assert not lean.run("check", "--full").stderr.count("error")


def test_built_by_name_it_is_whole_and_stays_so(lean):
    lean.run("build", "two", "--target=any")
    whole = lean.package("two_any")
    assert {"gen.lock", "gen.map", "model.py"} <= whole.keys() and not lean.git("status", "--porcelain")
    lean.replace("fragments/model/tools.py", "return -x", "return 0 - x")
    assert "two_any/model.py" in lean.run("check", code=1).stdout
    lean.run("build", "--all")
    assert lean.package("two_any")["model.py"] != whole["model.py"]
    assert lean.run("check").stdout == "2 packages checked, 1 of them not committed: as built\n"


@pytest.mark.parametrize("full", ([], ["--full"]))
def test_check_goes_by_the_lock(lean, full):
    assert states(lean, *full, code=0) == []
    lean.replace("fragments/model/tools.py", "return -x", "return 0 - x")
    found = states(lean, *full)
    assert [(state, path) for state, path, _ in found] == [
        ("stale", "generated/packages.lock"),
        ("stale", "generated/two_any/model.py"),
    ]
    assert all("a build would change this file: fragments/model/tools.py changed" in reason for *_, reason in found)


def test_a_lock_that_lies_is_found_by_weaving(lean):
    (text,) = parse_locks(lean.read(LOCKS)).values()
    lock = parse_lock(text)
    lean.write(LOCKS, format_locks({"two_any": replace(lock, outputs=lock.outputs | {"model.py": "0" * 64}).text}))
    assert states(lean, code=0) == []
    assert ("stale", "generated/two_any/model.py") in [one[:2] for one in states(lean, "--full")]
    for broken, said in ("{}", "has no lock of"), ('{"two_any": {}}', "is not a lock"), ("<<<<", "is not as gen"):
        lean.write(LOCKS, broken)
        ((state, path, reason),) = states(lean)
        assert (state, path) == ("missing", LOCKS) and said in reason
        lean.run("build", "--all")
        assert states(lean, "--full", code=0) == []


def test_files_that_are_there_are_as_the_lock_says(lean):
    lean.run("build", "two", "--target=any")
    lean.write("generated/two_any/model.py", "edited\n")
    ((state, path, _),) = states(lean)
    assert (state, path) == ("edited", "generated/two_any/model.py")
    lean.run("build", "--all", code=2)
    (lean.root / "generated/two_any/model.py").unlink()
    count = len(lean.package("two_any"))
    ((state, path, reason),) = states(lean)
    said = f"1 of the {count - 1} files of this package are gone; all of them, or none, should be there"
    assert (state, path, reason) == ("missing", "generated/two_any", said)
    lean.run("build", "--all")
    assert states(lean, code=0) == []
    lean.write("generated/two_any/mine.txt", "")
    assert [one[:2] for one in states(lean)] == [("foreign", "generated/two_any/mine.txt")]


def test_what_git_ignores_is_checked(lean):
    lean.write("generated/.gitignore", "mine\n/one_any/*\n")
    found = states(lean)
    assert found[0][:2] == ("stale", "generated/.gitignore") and "have committed = false" in found[0][2]
    lean.run("build", "--all")
    assert lean.read("generated/.gitignore") == "mine\n/one_any/*\n/two_any/\n"
    lean.write("generated/.gitignore", "/two_any/\n")
    (lean.root / "generated/.gitignore").unlink()
    assert states(lean)[0][:2] == ("missing", "generated/.gitignore")
    lean.replace("generated/packages.toml", "committed = false\n", "")
    lean.run("build", "--all")
    assert not (lean.root / "generated/.gitignore").exists() and not (lean.root / LOCKS).exists()
    assert "model.py" in lean.package("two_any")


def test_diff_shows_the_text_that_a_build_would_change(lean):
    """The text before is woven from the sources of the last commit."""
    assert "a build would change nothing" in lean.run("diff").stdout
    lean.replace("fragments/model/tools.py", "return -x", "return 0 - x")
    shown = lean.run("diff", code=1).stdout
    assert "@@ generated/two_any/model.py:" in shown and "-    return -x\n+    return 0 - x\n" in shown
    lean.commit("a fragment, and no build")
    assert "a build would change this file, whose text is not here" in lean.run("diff", code=1).stdout


def test_diff_against_weaves_what_was_not_committed(lean):
    def report(*words, code=0):
        found = json.loads(lean.run("diff", "--against", *words, "--json", code=code).stdout)["packages"]
        return {one["name"]: one for one in found}

    def verdicts(report):
        return {one["verdict"] for one in report["findings"]}

    assert {frozenset(verdicts(one)) for one in report("HEAD").values()} == {frozenset({"same text"})}
    lean.replace("fragments/model/tools.py", "    if x > 1:", "    # large\n    if x > 1:")
    found = report("HEAD")
    assert verdicts(found["one_any"]) == {"same text"} and verdicts(found["two_any"]) == {"same program"}
    assert found["two_any"]["files"] == ["model.py"] and "fragments/model/tools.py" in found["two_any"]["causes"]
    assert verdicts(report("HEAD~1")["two_any"]) == {"same program"}, "where it was committed"
    lean.commit("a fragment, and no build")  # so that the sources there do not make what the lock says
    found = report("HEAD", code=1)["two_any"]
    assert verdicts(found) == {"undecided"} and "gen build it at both" in found["findings"][0]["detail"]


def test_commands_that_read_every_package(lean):
    """gen loc counts all; explain, view and list show what is there."""
    assert "two_any" not in lean.run("explain", "--fragment", "net").stdout
    lean.run("view", "--out", "site")
    assert [path.name for path in lean.root.glob("site/package/*_any.html")] == ["one_any.html"]
    found = json.loads(lean.run("list", "--json").stdout)["packages"]
    assert [(one["committed"], one["built"]) for one in found] == [(True, True), (False, False)]
    assert "two_any  not built  lock alone" in lean.run("list").stdout
    counted = lean.run("loc", "--json").stdout
    lean.run("build", "two", "--target=any")
    assert lean.run("loc", "--json").stdout == counted
    assert [row["package"] for row in json.loads(counted)["Generated"]][:2] == ["one_any", "two_any"]


def test_commands_that_need_the_text_say_how_to_make_it(lean):
    said = "error: generated/two_any: does not exist: only its lock does\n  Build it: gen build two --target=any\n"
    places = "explain generated/two_any/model.py:3", "explain two_any/model.py"
    for words in (*places, "pull two_any", "own two_any", "diff one_any two_any"):
        assert lean.run(*words.split(), code=2).stderr == said


def test_pull_changes_its_lock(lean):
    lean.replace("generated/one_any/model.py", "y = x * math.pi", "y = 2 * x * math.pi")
    assert "also changes two_any" in lean.run("pull", "one_any", "--apply").stdout
    assert not (lean.root / "generated/two_any").exists()
    assert states(lean, "--full", code=0) == []


def test_owned_it_is_committed(lean):
    lean.run("build", "two", "--target=any")
    lean.run("own", "two_any")
    assert "committed" not in lean.read("generated/packages.toml")
    assert "generated/two_any/model.py" in lean.git("ls-files", "--others", "--exclude-standard")


def test_merge_weaves_its_lock(lean):
    lean.git("config", "merge.loomax.driver", "false")
    lean.git("checkout", "-qb", "other")
    lean.replace("fragments/model/tools.py", "return -x", "return 0 - x")
    lean.run("build", "--all")
    lean.commit("theirs")
    lean.git("checkout", "-q", "main")
    lean.replace("fragments/model/net.py", "y = x * math.pi", "y = 2 * x * math.pi")
    lean.run("build", "--all")
    lean.commit("ours")
    lean.git("merge", "-q", "other", code=1)
    lean.run("merge")
    assert not lean.git("diff", "--name-only", "--diff-filter=U")
    lean.git("commit", "-qm", "merged")
    assert not (lean.root / "generated/two_any").exists() and states(lean, "--full", code=0) == []
