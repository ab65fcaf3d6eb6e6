"""gen check --full finds an edit wherever it hides: in bytes, names, modes, locks, git's index, or in what is checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256

import pytest
from repository import findings

from generator.weaver import weave

PLACE = "generated/one_any"
MODEL, MAP, NET = f"{PLACE}/model.py", f"{PLACE}/gen.map", "fragments/model/net.py"
ONE = '[[package]]\narchitecture = "one"\ntarget = "any"\n'
TWO = '[[package]]\narchitecture = "two"\ntarget = "any"\n'
EVIL = "import os\n"
UNCHECKED_PYC = b"\xa7\x0d\x0d\x0a\x01\0\0\0" + 8 * b"x"


def new(path: str, data: bytes | str = EVIL) -> Callable:
    def make(repository) -> None:
        place = os.path.join(os.fsencode(repository.root), os.fsencode(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    return make


def edit(change: Callable[[bytes], bytes], path: str = MODEL) -> Callable:
    def make(repository) -> None:
        place = repository.root / path
        before = place.read_bytes()
        place.write_bytes(change(before))
        assert place.read_bytes() != before

    return make


EDIT = edit(lambda data: data + EVIL.encode())


def forge(change: Callable, table_of: str, path: str, name: str = "gen.lock") -> Callable:
    """Changes a file and its hash in the lock, which is sealed as gen seals it; a file that is gone has none."""

    def make(repository) -> None:
        change(repository)
        table = json.loads((repository.root / PLACE / "gen.lock").read_text())
        place = repository.root / (path if table_of == "inputs" else f"{PLACE}/{path}")
        table[table_of].pop(path, None)
        if place.exists():
            table[table_of][path] = sha256(place.read_bytes()).hexdigest()
        del table["seal"]
        table["seal"] = sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
        text = json.dumps(table, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (repository.root / PLACE / name).write_text(text)

    return make


def remove(path: str) -> Callable:
    return lambda repository: (repository.root / path).unlink()


def link(path: str, to: str) -> Callable:
    def make(repository) -> None:
        place = repository.root / path
        if place.is_dir():
            shutil.copytree(place, repository.root / to)
            shutil.rmtree(place)
        elif place.exists():
            place.rename(repository.root / to)
        place.symlink_to(os.path.relpath(repository.root / to, place.parent))

    return make


def index(mode: str, path: str, text: str = EVIL) -> Callable:
    """Changes git's index alone."""

    def make(repository) -> None:
        repository.write(".scratch", text)
        blob = repository.git("hash-object", "-w", ".scratch").strip()
        blob = repository.git("rev-parse", "HEAD").strip() if mode == "160000" else blob
        (repository.root / ".scratch").unlink()
        repository.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")

    make.staged = True
    return make


def unseen(flag: str) -> Callable:
    def make(repository) -> None:
        index("100644", MODEL)(repository)
        repository.git("update-index", flag, MODEL)

    make.staged = True
    return make


def filtered(repository) -> None:
    """Git has another text than the disk, which an attribute translates in both directions."""
    repository.write("evil", (repository.root / MODEL).read_text() + EVIL)
    repository.git("config", "filter.x.clean", f"cat '{repository.root / 'evil'}'")
    repository.write(".gitattributes", f"{MODEL} filter=x\n")


def executable(repository) -> None:
    (repository.root / MODEL).chmod(0o755)


def executable_in_git(repository) -> None:
    repository.git("update-index", "--chmod=+x", MODEL)


executable_in_git.staged = True


def elsewhere(repository) -> None:
    """The packages are checked in another folder, and those in the old one are edited."""
    shutil.copytree(repository.root / "generated", repository.root / "packages")
    repository.write("gen.toml", 'generated = "packages"\n')
    EDIT(repository)


def listed(text: str) -> Callable:
    def make(repository) -> None:
        EDIT(repository)
        new(f"{PLACE}/more.py")(repository)
        repository.write("generated/packages.toml", text)

    return make


def folder_for_file(repository) -> None:
    (repository.root / MODEL).unlink()
    new(f"{PLACE}/model.py/__init__.py")(repository)


def pipe(repository) -> None:
    os.mkfifo(repository.root / PLACE / "pipe")


# new files in a package: modules, what Python runs or takes for modules, names, hidden files, what git ignores
NEW = """
model/__init__.py model.cpython-311-x86_64-linux-gnu.so jax.pyc __pycache__/more.py jax.py ../jax.py model.pyi
conftest.py ../sitecustomize.py ../one_any.egg-info/entry_points.txt Model.py model.py.orig gen.base .env
.more/model.py build/model.py
"""
WAYS: dict[str, Callable] = {
    # bytes of a file
    "a line": EDIT,
    "a trailing space": edit(lambda data: data.replace(b"return", b"return ", 1)),
    "an empty line at the end": edit(lambda data: data + b"\n"),
    "no newline at the end": edit(lambda data: data[:-1]),
    "line ends of Windows": edit(lambda data: data.replace(b"\n", b"\r\n")),
    "one line end of Windows": edit(lambda data: data.replace(b"\n", b"\r\n", 1)),
    "a byte order mark": edit(lambda data: b"\xef\xbb\xbf" + data),
    "another encoding": edit(lambda data: b"# coding: latin-1\n" + data),
    "a letter that looks alike": edit(lambda data: data.replace(b"larger", "l\u0430rger".encode())),
    "a null byte": edit(lambda data: data + b"#\0\n"),
    "an empty file": edit(lambda data: b""),
    "what a template made": edit(lambda data: data + b"x\n", f"{PLACE}/README.md"),
    "the map": edit(lambda data: data.replace(b"net.py", b"nut.py"), MAP),
    "a file that is gone": remove(MODEL),
    # locks
    "a lock of the edit": forge(EDIT, "outputs", "model.py"),
    "a lock of a new file": forge(new(f"{PLACE}/more.py"), "outputs", "more.py"),
    "a lock without a file": forge(remove(f"{PLACE}/README.md"), "outputs", "README.md"),
    "a lock of a fragment that changed": forge(
        edit(lambda data: data.replace(b"# up", b"# upward"), NET), "inputs", NET
    ),
    "a lock of the map": forge(edit(lambda data: data.replace(b"net.py", b"nut.py"), MAP), "outputs", "gen.map"),
    "a journal of a build with the edit": forge(EDIT, "outputs", "model.py", ".gen.pending"),
    "a lock that is gone": remove(f"{PLACE}/gen.lock"),
    # what is no plain file
    "a link to a file": link(MODEL, "model.py"),
    "a link to a package": link(PLACE, "one_any"),
    "a link to a folder": link(f"{PLACE}/more", "fragments"),
    "a link that dangles": link(f"{PLACE}/jax", "nowhere"),
    "a folder for a file": folder_for_file,
    "a pipe": pipe,
    "a mode": executable,
    "a mode in git alone": executable_in_git,
    "a mode of the list": lambda repository: (repository.root / "generated/packages.toml").chmod(0o755),
    # files that Python takes for modules, or runs
    "a compiled folder that shadows a module": new(f"{PLACE}/model/__init__.pyc", UNCHECKED_PYC),
    "a compiled module in the cache": new(f"{PLACE}/__pycache__/model.cpython-311.pyc", UNCHECKED_PYC),
    "a compiled module with times": new(f"{PLACE}/__pycache__/model.cpython-311.pyc", UNCHECKED_PYC[:4] + 12 * b"\0"),
    # names
    "a name that looks alike": new(f"{PLACE}/m\u043edel.py"),
    "a name in another normal form": new(f"{PLACE}/mode\u0301l.py"),
    "a name that ends in a space": new(f"{PLACE}/model.py "),
    "a name of two lines": new(f"{PLACE}/a\n::error::b.py"),
    "a name of no text": new(f"{PLACE}/\udcff.py"),
    "a copy of the package": lambda repository: shutil.copytree(repository.root / PLACE, repository.root / f"{PLACE}2"),
    # hidden files
    "attributes that hide a diff": new(f"{PLACE}/.gitattributes", "*.py -diff\n"),
    "attributes of all packages": new("generated/.gitattributes", "*.py -diff\n"),
    "a list of what git ignores": new(f"{PLACE}/.gitignore", "*.py\n"),
    # git's index
    "staged alone": index("100644", MODEL),
    "new and staged alone": index("100644", f"{PLACE}/more.py"),
    "a staged link": index("120000", f"{PLACE}/more.py", "/etc/passwd"),
    "a submodule": index("160000", f"{PLACE}/more"),
    "assumed unchanged": unseen("--assume-unchanged"),
    "skipped": unseen("--skip-worktree"),
    # what is checked
    "a filter of git": filtered,
    "a package that the list lost": listed(TWO),
    "an owned package": listed(f"{ONE}by_hand = true\n{TWO}"),
    "a file of one's own": listed(f'own = ["one_any/more.py"]\n{ONE}{TWO}'),
    "an empty list": listed(""),
    "a package that is not committed": lambda repository: repository.write("generated/.gitignore", "/one_any/*\n"),
    "a package of one's own": listed(f'own = ["one_any"]\n{TWO}'),
    "another folder": elsewhere,
    "a folder that is not there": lambda repository: repository.write("gen.toml", 'generated = "packages"\n'),
} | {path: new(os.path.normpath(f"{PLACE}/{path}")) for path in NEW.split()}


@pytest.fixture
def quick(monkeypatch):
    """No processes, and of the same sources a package is woven once."""
    made: dict = {}

    def once(architecture, target, library, parts):
        key = architecture, target, parts, frozenset(library.files.items())
        if key not in made:
            made[key] = weave(architecture, target, library, parts=parts)
        return made[key]

    monkeypatch.setattr("generator.commands.packages.weave_package", once)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)


def test_every_way_is_found(repository, quick):
    """Each is added to git as far as it can be, found, told in lines without control characters, and taken away."""
    repository.write(".gitignore", "build/\n__pycache__/\n")
    repository.commit("what git ignores")
    repository.run("check", "--full", "--base", "HEAD")
    kept, missed = (repository.root / ".git/index").read_bytes(), []
    for name, way in WAYS.items():
        way(repository)
        if not hasattr(way, "staged"):
            repository.git("add", "-A", "-f", "--", ".")
        result = repository.run("check", "--full", "--base", "HEAD", code=None)
        if result.exit_code == 0 or not all(line.isprintable() for line in result.output.split("\n")):
            missed.append(f"{name}: {result.output!r}")
        (repository.root / ".git/index").write_bytes(kept)
        repository.git("reset", "-q", "--hard")
        repository.git("clean", "-ffdxq")
        (repository.root / PLACE / "pipe").unlink(missing_ok=True)  # which git does not see
    assert missed == []
    repository.run("check", "--full", "--base", "HEAD")


def test_caches_that_no_one_commits_are_fine(repository):
    new(f"{PLACE}/__pycache__/model.cpython-311.pyc", UNCHECKED_PYC[:4] + 12 * b"\0")(repository)
    new("generated/one_any.egg-info/top_level.txt")(repository)
    new(f"{PLACE}/.mypy_cache/x.json")(repository)
    repository.run("check", "--full", "--base", "HEAD")
    new(f"{PLACE}/__pycache__/model.cpython-312.pyc", UNCHECKED_PYC)(repository)
    assert "runs in place of its module" in repository.run("check", code=1).stdout


def test_disk_differs_from_the_commit(repository, tmp_path_factory, monkeypatch):
    """Which is as it is between a build and a commit; another repository that the environment names is not asked."""
    index("100644", MODEL)(repository)
    repository.git("commit", "-m", "an edit that is not on disk")
    said = repository.run("check", "--full").stdout
    assert f"uncommitted {MODEL}: differs from the last commit: what is on disk was checked" in said
    repository.git("reset", "--hard", "HEAD~1")
    other = tmp_path_factory.mktemp("other")
    subprocess.run(["git", "init", "-q", other], check=True)
    new(f"{PLACE}/__pycache__/more.py")(repository)
    repository.git("add", "-f", PLACE)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert "more.py: is tracked by git" in repository.run("check", "--full", code=1).stdout


def test_commands_that_are_printed_mend(repository):
    executable(repository)
    new("generated/.gitattributes", "*.py -diff\n")(repository)
    repository.git("add", "-A")
    unseen("--assume-unchanged")(repository)
    for _ in range(4):
        found = findings(repository, "--full", code=None)
        for finding in found:
            assert os.system(finding["command"]) == 0
    assert found == [] and repository.git("diff", "HEAD", "--name-only") == ""


class TestExpected:
    def test_file(self, repository, tmp_path_factory):
        kept = tmp_path_factory.mktemp("ci") / "expected.toml"
        kept.write_text(ONE + TWO)
        words = "check", "--full", "--expect", str(kept)
        repository.run(*words)
        repository.run("own", "two_any")
        said = repository.run(*words, code=1).stdout
        assert "unchecked generated/two_any: is owned by people now (by_hand), so that no check looks at it" in said
        kept.write_text(f"{ONE}{TWO}by_hand = true\n")
        assert "owned    generated/two_any: 0 lines changed in 0 files" in repository.run(*words).stdout

    def test_own_paths_are_told_in_every_run(self, repository):
        new("generated/notes.txt")(repository)
        repository.write("generated/packages.toml", f'own = ["notes.txt"]\n{ONE}{TWO}')
        said = "own      generated/notes.txt: is named as not gen's in packages.toml (own): not checked\n2 packages checked"
        assert said in repository.run("check").stdout
        assert "::notice file=generated/notes.txt,title=own::" in repository.run("check", "--format=github").stdout
        repository.commit("notes")
        repository.run("check", "--full", "--base", "HEAD")
        repository.run("check", "--full", "--base", "HEAD~", code=1)

    def test_project_without_a_list(self, repository):
        (repository.root / "generated/packages.toml").unlink()
        repository.commit("no list")
        repository.run("check", "--full", "--base", "HEAD")
        shutil.rmtree(repository.root / PLACE)
        said = repository.run("check", "--full", "--base", "HEAD", code=1).stdout
        assert "unchecked generated/one_any: is not in packages.toml any more" in said

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--base", "HEAD"], "goes with --full"),
            (["--full", "--base", "nowhere"], "there is no revision 'nowhere'"),
            (["--full", "--base", ""], "there is no revision ''"),
            (["--full", "--expect", "nowhere"], "nowhere: is not there"),
        ],
    )
    def test_mistakes(self, repository, words, said):
        assert said in repository.run("check", *words, code=2).stderr


def test_clone_with_the_line_ends_of_windows(repository, tmp_path_factory, monkeypatch):
    """The reason is told once a package, and the command mends the clone once .gitattributes has the line."""
    clone = tmp_path_factory.mktemp("windows") / "clone"
    repository.git("clone", "-q", "-c", "core.autocrlf=true", str(repository.root), str(clone))
    monkeypatch.setattr("generator.disk.project.builtin_root", lambda: clone)
    monkeypatch.chdir(clone)
    for words in ([], ["--full"]):
        found = findings(repository, *words)
        assert [(one["state"], one["package"]) for one in found] == [("edited", "one_any"), ("edited", "two_any")]
        assert all("the line ends of Windows (CRLF)" in one["reason"] and "eol=lf" in one["reason"] for one in found)
    (clone / ".gitattributes").write_text("* text=auto eol=lf\n")
    for command in {one["command"] for one in found}:
        assert os.system(command) == 0
    repository.run("check", "--full")
