"""gen check --full finds an edit wherever it hides: in bytes, names, modes, locks, git's index, or in what is checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256

import pytest

from generator.weaver import weave

PLACE = "generated/one_any"
MODEL = f"{PLACE}/model.py"
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


def forge(change: Callable, name: str = "gen.lock") -> Callable:
    """Changes the package and its lock, which is sealed as gen seals it."""

    def make(repository) -> None:
        path = repository.root / PLACE / "gen.lock"
        table = json.loads(path.read_text())
        change(repository, table)
        del table["seal"]
        table["seal"] = sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
        text = json.dumps(table, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        (repository.root / PLACE / name).write_text(text)

    return make


def forged_edit(repository, table) -> None:
    edit(lambda data: data + EVIL.encode())(repository)
    table["outputs"]["model.py"] = sha256((repository.root / MODEL).read_bytes()).hexdigest()


def forged_file(repository, table) -> None:
    new(f"{PLACE}/more.py")(repository)
    table["outputs"]["more.py"] = sha256(EVIL.encode()).hexdigest()


def forged_loss(repository, table) -> None:
    (repository.root / PLACE / "README.md").unlink()
    del table["outputs"]["README.md"]


def forged_input(repository, table) -> None:
    repository.replace("fragments/model/net.py", "# up", "# upward")
    table["inputs"]["fragments/model/net.py"] = sha256(repository.read("fragments/model/net.py").encode()).hexdigest()


def forged_map(repository, table) -> None:
    edit(lambda data: data.replace(b"net.py", b"nut.py"), f"{PLACE}/gen.map")(repository)
    table["outputs"]["gen.map"] = sha256((repository.root / PLACE / "gen.map").read_bytes()).hexdigest()


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
    edit(lambda data: data + EVIL.encode())(repository)


def listed(text: str) -> Callable:
    def make(repository) -> None:
        edit(lambda data: data + EVIL.encode())(repository)
        new(f"{PLACE}/more.py")(repository)
        repository.write("generated/packages.toml", text)

    return make


def folder_for_file(repository) -> None:
    (repository.root / MODEL).unlink()
    new(f"{PLACE}/model.py/__init__.py")(repository)


def pipe(repository) -> None:
    os.mkfifo(repository.root / PLACE / "pipe")


WAYS: dict[str, Callable] = {
    # bytes of a file
    "a line": edit(lambda data: data + EVIL.encode()),
    "a trailing space": edit(lambda data: data.replace(b"return", b"return ", 1)),
    "an empty line at the end": edit(lambda data: data + b"\n"),
    "no newline at the end": edit(lambda data: data[:-1]),
    "line ends of Windows": edit(lambda data: data.replace(b"\n", b"\r\n")),
    "one line end of Windows": edit(lambda data: data.replace(b"\n", b"\r\n", 1)),
    "a byte order mark": edit(lambda data: b"\xef\xbb\xbf" + data),
    "another encoding": edit(lambda data: b"# coding: latin-1\n" + data),
    "a letter that looks alike": edit(lambda data: data.replace(b"larger", "l\u0430rger".encode())),
    "text that reads backwards": edit(lambda data: data.replace(b"# up", "# up \u202e".encode())),
    "an invisible space": edit(lambda data: data.replace(b"# up", "# up\u200b".encode())),
    "a null byte": edit(lambda data: data + b"#\0\n"),
    "an empty file": edit(lambda data: b""),
    "what a template made": edit(lambda data: data + b"x\n", f"{PLACE}/README.md"),
    "the map": edit(lambda data: data.replace(b"net.py", b"nut.py"), f"{PLACE}/gen.map"),
    "a file that is gone": lambda repository: (repository.root / MODEL).unlink(),
    # locks
    "a lock of the edit": forge(forged_edit),
    "a lock of a new file": forge(forged_file),
    "a lock without a file": forge(forged_loss),
    "a lock of a fragment that changed": forge(forged_input),
    "a lock of the map": forge(forged_map),
    "a journal of a build with the edit": forge(forged_edit, ".gen.pending"),
    "a lock that is gone": lambda repository: (repository.root / PLACE / "gen.lock").unlink(),
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
    "a folder that shadows a module": new(f"{PLACE}/model/__init__.py"),
    "a compiled folder that shadows a module": new(f"{PLACE}/model/__init__.pyc", UNCHECKED_PYC),
    "a library that shadows a module": new(f"{PLACE}/model.cpython-311-x86_64-linux-gnu.so"),
    "a library of Windows": new(f"{PLACE}/model.pyd"),
    "a compiled module": new(f"{PLACE}/jax.pyc"),
    "a compiled module in the cache": new(f"{PLACE}/__pycache__/model.cpython-311.pyc", UNCHECKED_PYC),
    "a compiled module with times": new(f"{PLACE}/__pycache__/model.cpython-311.pyc", UNCHECKED_PYC[:4] + 12 * b"\0"),
    "a source in the cache": new(f"{PLACE}/__pycache__/more.py"),
    "a module of a library's name": new(f"{PLACE}/jax.py"),
    "a module beside the packages": new("generated/jax.py"),
    "a package beside the packages": new("generated/jax/__init__.py"),
    "a stub": new(f"{PLACE}/model.pyi"),
    "a path file": new(f"{PLACE}/more.pth"),
    "tests": new(f"{PLACE}/conftest.py"),
    "tests beside the packages": new("generated/conftest.py"),
    "start-up": new("generated/sitecustomize.py"),
    "metadata with entry points": new("generated/one_any.egg-info/entry_points.txt"),
    "metadata in a package": new(f"{PLACE}/one_any.egg-info/top_level.txt"),
    # names
    "another case": new(f"{PLACE}/Model.py"),
    "a package of another case": new("generated/One_any/model.py"),
    "a name that looks alike": new(f"{PLACE}/m\u043edel.py"),
    "a name in another normal form": new(f"{PLACE}/mode\u0301l.py"),
    "a name that ends in a space": new(f"{PLACE}/model.py "),
    "a name of two lines": new(f"{PLACE}/a\n::error::b.py"),
    "a name that moves the cursor": new(f"{PLACE}/\x1b[2Ka.py"),
    "a name of no text": new(f"{PLACE}/\udcff.py"),
    "an editor's copy": new(f"{PLACE}/model.py~"),
    "the text of a merge": new(f"{PLACE}/model.py.orig"),
    "what an owned package has": new(f"{PLACE}/gen.base"),
    "a copy of the package": lambda repository: shutil.copytree(repository.root / PLACE, repository.root / f"{PLACE}2"),
    # hidden files
    "a hidden file": new(f"{PLACE}/.env"),
    "a hidden folder": new(f"{PLACE}/.more/model.py"),
    "a hidden folder beside the packages": new("generated/.more/model.py"),
    "attributes that hide a diff": new(f"{PLACE}/.gitattributes", "*.py -diff\n"),
    "attributes of all packages": new("generated/.gitattributes", "*.py -diff\n"),
    "a list of what git ignores": new(f"{PLACE}/.gitignore", "*.py\n"),
    "a notebook's copy": new(f"{PLACE}/.ipynb_checkpoints/model.py"),
    "what git ignores": new(f"{PLACE}/build/model.py"),
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
}


@pytest.fixture
def quick(monkeypatch):
    """No processes, and of the same sources a package is woven once."""
    made: dict = {}

    def once(architecture, target, library, parts):
        key = architecture, target, parts, frozenset(library.files.items())
        if key not in made:
            made[key] = weave(architecture, target, library, parts=parts)
        return made[key]

    monkeypatch.setattr("generator.commands.packages.weave", once)
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
        found = json.loads(repository.run("check", "--full", "--json", code=None).stdout)["findings"]
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
    for words in (["check"], ["check", "--full"]):
        found = json.loads(repository.run(*words, "--json", code=1).stdout)["findings"]
        assert [(one["state"], one["package"]) for one in found] == [("edited", "one_any"), ("edited", "two_any")]
        assert all("the line ends of Windows (CRLF)" in one["reason"] and "eol=lf" in one["reason"] for one in found)
    (clone / ".gitattributes").write_text("* text=auto eol=lf\n")
    for command in {one["command"] for one in found}:
        assert os.system(command) == 0
    repository.run("check", "--full")
