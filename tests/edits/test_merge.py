"""gen merge in real repositories: two branches that both build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from repository import findings

ONE, TWO = "generated/one_any/model.py", "generated/two_any/model.py"
NET, SHIFT, TOOLS = "fragments/model/net.py", "fragments/model/shift.py", "fragments/model/tools.py"


@pytest.fixture(params=["driver", "no driver"])
def branches(repository, request, monkeypatch):
    """A repository with gen as git's merge driver, and one without it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    if request.param == "driver":
        driver = f"'{sys.executable}' -m generator merge --driver %O %A %B %P"
        repository.git("config", "merge.loomax.driver", driver)
    else:
        repository.git("config", "--remove-section", "merge.loomax")
    repository.driver = request.param == "driver"
    return repository


def begin(repository, theirs: list[tuple], main: list[tuple], code: int | None = 1) -> None:
    """Commits edits on two branches, built where they are of sources, and merges the one into the other."""
    for branch, edits in (("theirs", theirs), ("main", main)):
        change(repository, branch, *edits, build=not any(path.startswith("generated/") for path, _, _ in edits))
        repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "theirs", code=code)


def change(repository, branch: str, *edits: tuple[str, str, str], build: bool = True) -> None:
    """Commits edits on a branch that begins at the start."""
    repository.git("checkout", "-q", *([] if branch == "main" else ["-b"]), branch)
    for edit in edits:
        repository.replace(*edit)
    if build:
        repository.run("build", "--all")
    repository.commit(branch)


def marks(repository) -> list[str]:
    """Returns the files with conflict markers."""
    return repository.git("grep", "-l", "<<<<<<<", "--", "generated", "fragments", code=None).split()


def check_whole(repository) -> None:
    """Checks that everything is merged, and that the packages are what a build makes."""
    assert repository.git("diff", "--name-only", "--diff-filter=U") == ""
    repository.git("commit", "-qm", "merged")
    assert repository.git("status", "--short") == ""
    repository.run("check", "--full")


def test_two_fragments(branches):
    begin(
        branches,
        [(SHIFT, "y + 1", "y + 7"), (TOOLS, "return -x", "return 8")],
        [(NET, "# up", "# upward"), (NET, '"nothing came out"', '"empty"')],
    )
    assert branches.driver == (marks(branches) == [])
    assert "2 packages woven" in branches.run("merge").stdout
    assert "# upward" in branches.read(ONE) and "y + 7" in branches.read(ONE)
    assert "# upward" in branches.read(TWO) and "return 8" in branches.read(TWO)
    check_whole(branches)


def test_one_fragment(branches):
    """Conflicts of fragments are reported, and nothing is woven before they are decided."""
    begin(branches, [(NET, "# up", "# down")], [(NET, "# up", "# upward")])
    before = branches.read(ONE)
    said = branches.run("merge", code=2).stderr
    assert f"error: {NET}:21: is marked as a conflict\n" in said
    assert branches.read(ONE) == before
    head, rest = branches.read(NET).split("<<<<<<< ")
    branches.write(NET, head + "    y = x * math.pi  # both\n" + rest.split("theirs\n")[1])
    branches.git("add", NET)
    branches.run("merge")
    assert "# both" in branches.read(ONE) and "# both" in branches.read(TWO)
    check_whole(branches)


@pytest.mark.parametrize("edited_in", ["theirs", "main"])
def test_fragment_and_hand_edit(branches, edited_in):
    """The edit is merged into what is woven, and gen check reports it as before."""
    edits = {"theirs": [(ONE, '"""The whole."""', '"""Mine."""')], "main": [(NET, "# up", "# upward")]}
    begin(branches, edits[edited_in], edits[{"theirs": "main", "main": "theirs"}[edited_in]], code=None)
    if branches.git("rev-parse", "-q", "--verify", "MERGE_HEAD", code=None):
        assert f"edited   {ONE}" in branches.run("merge").stdout
        branches.git("commit", "-qm", "merged")
    text = branches.read(ONE)
    assert '"""Mine."""' in text and "# upward" in text and '"""The whole."""' in branches.read(TWO)
    assert [(one["state"], one["path"]) for one in findings(branches, "--full")] == [("edited", ONE)]


def test_fragment_and_hand_edit_of_one_line(branches):
    begin(branches, [(ONE, "# up", "# mine")], [(NET, "# up", "# upward")])
    said = branches.run("merge", code=1).stdout
    assert f"conflict {ONE}:" in said and f"{NET}:21" in said
    assert marks(branches) == [ONE] and branches.git("diff", "--name-only", "--diff-filter=U").split() == [ONE]
    text = branches.read(ONE)
    assert "# mine" in text and "# upward" in text and ">>>>>>> fragments/model/net.py" in text


def test_two_hand_edits_of_one_line(branches):
    """The marker names the side that edited the line, not the fragment of the line."""
    begin(branches, [(ONE, "# up", "# theirs")], [(ONE, "# up", "# ours")])
    said = branches.run("merge", code=1).stdout
    assert f"conflict {ONE}:" in said and NET not in said
    text = branches.read(ONE)
    assert "<<<<<<< edited in MERGE_HEAD" in text and ">>>>>>> edited in HEAD\n" in text
    assert "# ours" in text and "# theirs" in text


def test_edit_since_the_merge_began(branches):
    begin(branches, [(SHIFT, "y + 1", "y + 7")], [(SHIFT, "y * y", "y * y * y")])
    branches.git("checkout", "-q", "--ours", ".", code=None)
    branches.write(SHIFT, branches.read(SHIFT).split("<<<<")[0])
    branches.replace(TWO, "return -x", "return 0")
    branches.write(SHIFT, branches.git("show", "main:" + SHIFT))
    said = branches.run("merge", code=2).stderr
    assert f"{TWO}: was edited since the merge began" in said and "return 0" in branches.read(TWO)


def test_rebase(branches):
    change(branches, "theirs", (SHIFT, "y + 1", "y + 7"))
    branches.git("checkout", "-q", "main")
    change(branches, "main", (NET, "# up", "# upward"))
    branches.git("rebase", "-q", "theirs", code=1)
    branches.run("merge")
    branches.git("-c", "core.editor=true", "rebase", "--continue")
    assert "# upward" in branches.read(ONE) and "y + 7" in branches.read(ONE)
    branches.run("check", "--full")


def test_owned_package(branches):
    """Lines are merged, as in any file."""
    branches.run("own", "one_any")
    branches.commit("own")
    change(branches, "theirs", (ONE, '"""The whole."""', '"""Mine."""'), (SHIFT, "y * y", "y * 7"), build=False)
    branches.run("update", "one_any")
    branches.git("commit", "-qam", "updated")
    branches.git("checkout", "-q", "main")
    change(branches, "main", (ONE, "Makes it larger.", "Mine too."), (NET, "# up", "# upward"), build=False)
    branches.run("update", "one_any")
    branches.git("commit", "-qam", "updated")
    if branches.driver:  # nothing is left to do
        branches.git("merge", "-q", "theirs")
    else:
        branches.git("merge", "-q", "theirs", code=1)
        branches.run("merge")
        branches.git("commit", "-qm", "merged")
    branches.run("update", "one_any")
    text = branches.read(ONE)
    assert '"""Mine."""' in text and "Mine too." in text and "# upward" in text and "y * 7" in text
    branches.run("build", "--all")
    branches.run("check", "--full")


def test_owned_package_that_conflicts(branches):
    branches.run("own", "one_any")
    branches.commit("own")
    begin(branches, [(ONE, "# up", "# mine")], [(ONE, "# up", "# yours")])
    assert f"conflict {ONE}:14" in branches.run("merge", code=1).stdout
    assert marks(branches) == [ONE]


def test_fragments_that_cannot_be_woven(branches):
    begin(branches, [(SHIFT, "y + 1", "y + 7")], [(NET, "# up", "# upward")])
    branches.replace(NET, "# upward", "((")
    found = branches.run("merge", code=2)
    assert "0 packages woven" in found.stdout
    branches.replace(NET, "((", "# upward")
    branches.run("merge")
    check_whole(branches)


def test_no_merge(repository):
    assert "no merge is going on" in repository.run("merge", code=2).stderr


@pytest.mark.parametrize("owner", ["theirs", "main"])
@pytest.mark.parametrize("edited", ['"nothing came out"', "y + 1"], ids=["apart", "one line"])
def test_package_that_one_side_owns(branches, owner, edited):
    """The owner's edits are merged with what the other side wove; a line that both changed is a conflict there."""
    for branch in ("theirs", "main"):
        branches.git("checkout", "-q", *([] if branch == "main" else ["-b"]), branch)
        if branch == owner:
            branches.run("own", "one_any")
            branches.replace(ONE, edited, "y + 3")
        else:
            branches.replace(SHIFT, "y + 1", "y + 7")
            branches.run("build", "--all")
        branches.commit(branch)
        branches.git("checkout", "-q", "main")
    branches.git("merge", "-q", "theirs", code=None)
    conflicts = edited == "y + 1"
    if branches.git("rev-parse", "-q", "--verify", "MERGE_HEAD", code=None):
        said = branches.run("merge", code=int(conflicts)).stdout
        assert (f"conflict {ONE}:15" in said) == conflicts
    text = branches.read(ONE)
    assert "y + 3" in text and "y + 7" in text and (marks(branches) == [ONE]) == conflicts
    if not conflicts:
        branches.git("commit", "-qm", "merged", code=None)
        assert branches.git("status", "--short") == ""
        branches.run("check", "--full")
        branches.run("update", "one_any")
        assert branches.read(ONE) == text


@pytest.mark.parametrize("path", [SHIFT, "templates/README.md.jinja", "templates/architectures/two.toml"])
@pytest.mark.parametrize("remover", ["theirs", "main"])
def test_source_that_one_side_removed_and_the_other_changed(branches, path, remover):
    """It is a conflict without marks: gen merge weaves nothing before it is decided."""
    for branch in ("theirs", "main"):
        branches.git("checkout", "-q", *([] if branch == "main" else ["-b"]), branch)
        if branch == remover:
            branches.git("rm", "-q", path)
        else:
            branches.write(path, branches.read(path) + "\n# more\n")
        branches.commit(branch)
        branches.git("checkout", "-q", "main")
    branches.git("merge", "-q", "theirs", code=1)
    said = branches.run("merge", code=2).stderr
    assert f"error: {path}: " in said and "removed on one side" in said and f"git rm {path}" in said
    branches.git("add", path)
    branches.run("merge")
