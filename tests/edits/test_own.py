"""gen own and gen update: packages that people own, against what git merges of hand-made copies."""

from __future__ import annotations

import json
import random
import re
import subprocess
import tomllib

import pytest
from repository import findings

ONE = "generated/one_any/model.py"
NET, SHIFT = "fragments/model/net.py", "fragments/model/shift.py"


def owned(lines: str, path: str = "generated/one_any") -> list[tuple[str, str, str]]:
    return [("owned", path, lines)]


def states(repository) -> list[tuple[str, str, str]]:
    return [(one["state"], one["path"], one["reason"]) for one in findings(repository, code=0)]


class TestOwn:
    def test_check_counts_and_build_leaves_alone(self, repository):
        repository.run("own", "one_any")
        assert states(repository) == owned("0 lines changed in 0 files")
        repository.replace(ONE, "# up", "# mine")
        repository.replace(ONE, "    y = y + 1\n", "")
        repository.write("generated/one_any/more.py", "mine = 1\n")
        assert states(repository) == owned("2 lines changed in 1 file, and more.py added")
        repository.replace(NET, '"nothing came out"', '"empty"')
        before = repository.package("one_any")
        assert "one_any: owned, left alone" in repository.run("build", "--all").stderr
        assert "left alone" in repository.run("build", "one", "--target=any", "--force").stdout
        assert repository.package("one_any") == before
        (found,) = findings(repository, code=0)
        assert found["command"] == "gen update one_any" and "net.py changed" in found["reason"]
        assert "a build would change nothing" in repository.run("diff").stdout

    def test_lock_that_is_gone(self, repository):
        """The other files are not foreign: the base of a merge must not be removed."""
        repository.run("own", "one_any")
        repository.replace(ONE, "# up", "# mine")
        (repository.root / "generated/one_any/gen.lock").unlink()
        (found,) = findings(repository)
        assert (found["state"], found["path"]) == ("missing", "generated/one_any/gen.lock")
        assert found["command"] == "git restore generated/one_any/gen.lock"
        assert found["command"] in repository.run("update", "one_any", code=2).stderr

    def test_base_from_the_history(self, repository):
        """The package was edited and its fragments changed: only git has the text of the last build."""
        repository.replace(ONE, "# up", "# mine")
        repository.replace(NET, '"nothing came out"', '"empty"')
        repository.run("own", "one_any")
        repository.run("update", "one_any")
        assert "# mine" in repository.read(ONE) and '"empty"' in repository.read(ONE)

    def test_base_that_is_nowhere(self, repository):
        repository.replace(NET, "# up", "# above")
        repository.run("build", "--all")  # never committed
        repository.replace(ONE, "# above", "# mine")
        repository.replace(NET, "# above", "# higher")
        said = repository.run("own", "one_any", code=2).stderr
        assert "neither in gen.base nor in git" in said and "by_hand" not in repository.read("generated/packages.toml")

    def test_list(self, repository):
        """It keeps its comments; a project without one gets it."""
        listed = "generated/packages.toml"
        text = "# mine\n" + repository.read(listed) + "# the end\n"
        repository.write(listed, text.replace('target = "any"\n# the', 'target = "any"\nby_hand = false\n# the'))
        repository.run("own", "two_any")
        after = text.replace('target = "any"\n# the', 'target = "any"\nby_hand = true\n# the')
        assert repository.read(listed) == after
        assert "is owned already" in repository.run("own", "two_any").stdout
        repository.write(listed, after.replace("true", '"yes"'))
        assert "not true or false" in repository.run("check", code=2).stderr
        (repository.root / listed).unlink()
        repository.run("own", "two_any")
        table = tomllib.loads(repository.read(listed))["package"]
        assert [(one["architecture"], one.get("by_hand", False)) for one in table] == [("one", False), ("two", True)]

    def test_project_of_ones_own(self, repository, monkeypatch):
        repository.run("build", "one", "--target=any", "--own", "mine")
        assert repository.package("one_any")["model.py"] == (repository.root / "mine/one_any/model.py").read_bytes()
        repository.run("build", "one", "--target=any", "--own", "mine", code=2)
        for folder in ("generated/mine", "fragments/mine"):
            said = repository.run("build", "one", "--target=any", "--own", folder, code=2).stderr
            assert f"lies in {folder.partition('/')[0]}" in said and not (repository.root / folder).exists()
        monkeypatch.chdir(repository.root / "mine")
        assert states(repository) == owned("0 lines changed in 0 files", "one_any")
        repository.replace("mine/one_any/model.py", "# up", "# mine")
        repository.replace(NET, '"nothing came out"', '"empty"')
        repository.run("update", "one_any")
        text = repository.read("mine/one_any/model.py")
        assert "# mine" in text and '"empty"' in text
        assert states(repository) == owned("1 line changed in 1 file", "one_any")

    def test_some_edits_of_an_owned_package_go_home(self, repository):
        """An edit that went home is not counted any more, and the next update merges on top of it."""
        repository.run("own", "one_any")
        repository.replace(ONE, "# up", "# upward")
        repository.replace(ONE, "x = x * 2", "x = x * 7")
        repository.run("pull", "one_any", "--apply", code=1)
        assert "# upward" in repository.read(NET) and "x = x * 7" in repository.read(ONE)
        assert states(repository) == owned("1 line changed in 1 file")
        repository.replace(NET, "# upward", "# higher")
        repository.run("update", "one_any")
        assert "# higher" in repository.read(ONE) and "x = x * 7" in repository.read(ONE)


class TestUpdate:
    @pytest.fixture
    def conflicting(self, repository):
        repository.run("own", "one_any")
        repository.replace(ONE, "y = y * y", "y = y * 7")
        repository.replace(SHIFT, "y = y * y", "y = y * 8")
        return repository

    def test_conflict_names_the_fragment(self, conflicting):
        repository = conflicting
        said = repository.run("update", "one_any", code=1).stdout
        assert f"conflict {ONE}:" in said and f"\n         {SHIFT}:9" in said
        text = repository.read(ONE)
        mark = f"<<<<<<< one_any\n    y = y * 7\n=======\n    y = y * 8\n>>>>>>> {SHIFT} (not committed)\n"
        assert mark in text
        (_, left) = findings(repository)
        assert (left["state"], left["path"]) == ("edited", ONE) and "a conflict was left at line" in left["reason"]
        assert "a conflict was left here" in repository.run("update", "one_any", code=2).stderr
        repository.replace(ONE, mark, "    y = y * 15\n")
        assert "bring nothing new" in repository.run("update", "one_any").stdout

    def test_conflict_names_the_commit(self, conflicting):
        """It is the commit that changed these lines: other lines of the fragment were changed later."""
        repository = conflicting
        repository.commit("Times eight")
        commit = repository.git("log", "-1", "--format=%h").strip() + " Times eight"
        repository.write(SHIFT, repository.read(SHIFT) + "# the end\n")
        repository.commit("The end")
        said = repository.run("update", "one_any", code=1).stdout
        assert f"last changed by {commit}\n" in said
        assert f">>>>>>> {SHIFT} ({commit})\n" in repository.read(ONE)

    def test_line_ends_of_windows(self, repository):
        """Line ends of an editor are kept, and are not edits."""
        repository.run("own", "one_any")
        path = repository.root / ONE
        path.write_bytes(path.read_bytes().replace(b"# up", b"# mine").replace(b"\n", b"\r\n"))
        repository.replace(NET, '"nothing came out"', '"empty"')
        repository.run("update", "one_any")
        merged = path.read_bytes()
        assert b'"empty"' in merged and b"# mine" in merged and b"<<<" not in merged
        assert merged.count(b"\r\n") == merged.count(b"\n")

    def test_tests_are_named(self, repository):
        repository.replace("templates/package.toml", "[folders]\n", '[folders]\ntests = "tests/"\n')
        repository.replace(
            "templates/package.toml", "[documentation]\n", '[documentation]\n"tests/__init__.py" = "T."\n'
        )
        repository.write("fragments/tests/test_net.py", '"""T."""\n\n\ndef test_it():\n    assert True\n')
        repository.replace("templates/architectures/one.toml", '"model/shift"', '"model/shift", "tests/test_net"')
        repository.run("own", "one_any")
        said = repository.run("update", "one_any").stdout
        assert "merged   generated/one_any/tests/test_net.py" in said
        assert "run its tests: cd generated && python -m pytest one_any" in said

    def test_files_that_come_and_go(self, repository):
        """As git does: what one side removed and the other changed is a conflict, and what was changed stays."""
        repository.run("own", "one_any")
        repository.replace("targets/any/target.toml", '"README.md"', '"NOTES.md"')
        repository.run("update", "one_any")
        assert {"NOTES.md"} == {path for path in repository.package("one_any") if path.endswith(".md")}
        repository.replace("generated/one_any/NOTES.md", "Made", "Built")
        repository.replace("targets/any/target.toml", '"NOTES.md"', '"README.md"')
        assert "NOTES.md: edited here" in repository.run("update", "one_any", code=1).stdout
        assert "Built" in repository.read("generated/one_any/NOTES.md")


def merged_by_git(folder, base: bytes, ours: bytes, theirs: bytes) -> tuple[str, int]:
    """Merges a file that changed on two branches with `git merge`; returns its text and the exit code."""

    def git(*words: str) -> int:
        options = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "merge.conflictStyle=merge"]
        return subprocess.run(["git", *options, *words], cwd=folder, capture_output=True).returncode

    assert git("init", "-q", "-b", "main") == 0
    for branch, data in (("main", base), ("theirs", theirs), ("main", ours)):
        git("checkout", "-q", *(["-b"] if branch == "theirs" else []), branch)
        (folder / "file.py").write_bytes(data)
        git("add", "-A")
        git("commit", "-qm", branch, "--allow-empty")
    code = git("merge", "-q", "theirs")
    return (folder / "file.py").read_text(), code


SOURCE_EDITS = [
    (NET, "# up", "# upward"),
    (NET, "math.pi", "math.tau"),
    (NET, "    return z\n", "    z = z - 1\n    return z\n"),
    (NET, "Makes it larger.", "Makes it smaller."),
    (NET, '    assert x, "nothing came out"\n', ""),
    (NET, '"""The whole."""', '"""All."""'),
    (SHIFT, "y = y * y", "y = y * y * y"),
    (SHIFT, "y = y + 1", "y = y + 2"),
    (SHIFT, "    y = y * y\n", ""),
]
HAND_EDITS = [
    ("# up", "# mine"),
    ("math.pi", "3"),
    ("y = y * y", "y = y * 5"),
    ("    y = y + 1\n", ""),
    ("Twice over.", "Thrice over."),
    ('"""The whole."""', '"""Everything."""'),
    ("for _ in range(config.depth):", "for _ in range(9):"),
    ("def model(", "def mine():\n    return 1\n\n\ndef model("),
    ("x + config.width", "x"),
]


@pytest.mark.parametrize("seed", range(30))
def test_histories(repository, tmp_path_factory, seed):
    """Edits here and there, twice over; after each update every file is what git merge makes of the same three."""
    draw = random.Random(seed)
    repository.run("own", "one_any")
    here, there = draw.sample(HAND_EDITS, 4), draw.sample(SOURCE_EDITS, 4)
    for round_ in range(2):
        base = json.loads(repository.read("generated/one_any/gen.base"))["files"]["model.py"].encode()
        for old, new in here[2 * round_ : 2 * round_ + 2]:
            if repository.read(ONE).count(old) == 1:
                repository.replace(ONE, old, new)
        for path, old, new in there[2 * round_ : 2 * round_ + 2]:
            if repository.read(path).count(old) == 1:
                repository.replace(path, old, new)
        repository.run("build", "one", "--target=any", "--out", "elsewhere", "--force")
        theirs = (repository.root / "elsewhere/one_any/model.py").read_bytes()
        ours = (repository.root / ONE).read_bytes()
        wanted, code = merged_by_git(tmp_path_factory.mktemp("git"), base, ours, theirs)
        done = json.loads(repository.run("update", "one_any", "--json", code=code).stdout)
        names = re.compile(r"^([<>]{7}) .*$", re.M)
        assert names.sub(r"\1", repository.read(ONE)) == names.sub(r"\1", wanted)
        assert len(done["conflicts"]) == wanted.count("\n<<<<<<< ")
        assert all(one["sources"][0].startswith("fragments/") for one in done["conflicts"]), (done, wanted)
        mark = r"<<<<<<< .*?\n(.*?)=======\n.*?>>>>>>> .*?\n"
        repository.write(ONE, re.sub(mark, r"\1", repository.read(ONE), flags=re.S))  # decided for our side
