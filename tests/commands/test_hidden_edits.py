"""gen check --full finds an edit wherever it hides: in bytes, names, modes, locks, git's index, or in what is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from repository import findings

from generator.weaver import weave

PLACE = "generated/one_any"
MODEL = f"{PLACE}/model.py"
ONE = '[[package]]\narchitecture = "one"\ntarget = "any"\n'
TWO = '[[package]]\narchitecture = "two"\ntarget = "any"\n'
# `seal TABLE PATH [NAME]` writes the hash of a file into the lock, and seals it as gen does
SEAL = """
import hashlib, json, os, sys
table_of, path, name = (*sys.argv[1:], "gen.lock")[:3]
def digest(data): return hashlib.sha256(data).hexdigest()
def text(table, **how): return json.dumps(table, sort_keys=True, ensure_ascii=False, **how)
table = json.load(open("generated/one_any/gen.lock"))
place = path if table_of == "inputs" else f"generated/one_any/{path}"
table[table_of].pop(path, None)
if os.path.exists(place):
    table[table_of][path] = digest(open(place, "rb").read())
del table["seal"]
open(f"generated/one_any/{name}", "w").write(text(table | {"seal": digest(text(table).encode())}, indent=2) + "\\n")
"""
FUNCTIONS = r"""
set -e
P=generated/one_any M=$P/model.py NET=fragments/model/net.py
evil() { echo 'import os' >> $M; }
new() { mkdir -p "$(dirname "$1")"; printf '%s\n' "${2:-import os}" > "$1"; }
pyc() { mkdir -p "$(dirname "$1")"; printf '\247\r\r\n\1\0\0\0xxxxxxxx' > "$1"; }  # its hash is not checked
stale_pyc() { mkdir -p "$(dirname "$1")"; printf '\247\r\r\n\0\0\0\0\0\0\0\0\0\0\0\0' > "$1"; }
seal() { "$PYTHON" -c "$SEAL" "$@"; }
stage() { git update-index --add --cacheinfo $1,${3:-$(echo import os | git hash-object -w --stdin)},$2; }
listed() { evil; new $P/more.py; printf '%s' "$1" > generated/packages.toml; }
"""
# new files in a package: modules, what Python runs or takes for modules, names, hidden files, what git ignores
NEW = """
model/__init__.py model.cpython-311-x86_64-linux-gnu.so jax.pyc __pycache__/more.py jax.py ../jax.py model.pyi
conftest.py ../sitecustomize.py ../one_any.egg-info/entry_points.txt Model.py model.py.orig gen.base .env
.more/model.py build/model.py
"""
WAYS = {
    # bytes of a file
    "a line": "evil",
    "a trailing space": "sed -i '0,/return/s//return /' $M",
    "an empty line at the end": "echo >> $M",
    "no newline at the end": "truncate -s -1 $M",
    "line ends of Windows": r"sed -i 's/$/\r/' $M",
    "one line end of Windows": r"sed -i '1s/$/\r/' $M",
    "a byte order mark": r"sed -i '1s/^/\xef\xbb\xbf/' $M",
    "another encoding": "sed -i '1i # coding: latin-1' $M",
    "a letter that looks alike": "sed -i s/larger/l\u0430rger/ $M",
    "a null byte": r"printf '#\0\n' >> $M",
    "an empty file": ": > $M",
    "what a template made": "echo x >> $P/README.md",
    "the map": "sed -i s/net.py/nut.py/g $P/gen.map",
    "a file that is gone": "rm $M",
    # locks
    "a lock of the edit": "evil; seal outputs model.py",
    "a lock of a new file": "new $P/more.py; seal outputs more.py",
    "a lock without a file": "rm $P/README.md; seal outputs README.md",
    "a lock of a fragment that changed": "sed -i 's/# up/# upward/' $NET; seal inputs $NET",
    "a lock of the map": "sed -i s/net.py/nut.py/g $P/gen.map; seal outputs gen.map",
    "a journal of a build with the edit": "evil; seal outputs model.py .gen.pending",
    "a lock that is gone": "rm $P/gen.lock",
    # what is not a plain file
    "a link to a file": "mv $M model.py; ln -s ../../model.py $M",
    "a link to a package": "mv $P one_any; ln -s ../one_any $P",
    "a link to a folder": "ln -s ../../fragments $P/more",
    "a link that dangles": "ln -s ../../nowhere $P/jax",
    "a folder for a file": "rm $M; new $M/__init__.py",
    "a pipe": "mkfifo $P/pipe",
    "a mode": "chmod 755 $M",
    "a mode of the list": "chmod 755 generated/packages.toml",
    # files that Python takes for modules, or runs
    "a compiled folder that shadows a module": "pyc $P/model/__init__.pyc",
    "a compiled module in the cache": "pyc $P/__pycache__/model.cpython-311.pyc",
    "a compiled module with times": "stale_pyc $P/__pycache__/model.cpython-311.pyc",
    # names
    "a name that looks alike": "new $P/m\u043edel.py",
    "a name in another normal form": "new $P/mode\u0301l.py",
    "a name that ends in a space": "new $P/model.py' '",
    "a name of two lines": r"new $P/$'a\n::error::b.py'",
    "a name of no text": r"new $P/$'\xff.py'",
    "a copy of the package": "cp -r $P ${P}2",
    # hidden files
    "attributes that hide a diff": "new $P/.gitattributes '*.py -diff'",
    "attributes of all packages": "new generated/.gitattributes '*.py -diff'",
    "a list of what git ignores": "new $P/.gitignore '*.py'",
    # what is checked
    "a filter of git": """
        { cat $M; echo import os; } > evil
        git config filter.x.clean "cat '$PWD/evil'"
        echo "$M filter=x" > .gitattributes""",
    "a package that the list lost": f"listed '{TWO}'",
    "an owned package": f"listed '{ONE}by_hand = true\n{TWO}'",
    "a file of one's own": f"""listed 'own = ["one_any/more.py"]\n{ONE}{TWO}'""",
    "an empty list": "listed ''",
    "a package that is not committed": "echo '/one_any/*' > generated/.gitignore",
    "a package of one's own": f"""listed 'own = ["one_any"]\n{TWO}'""",
    "another folder": "cp -r generated packages; new gen.toml 'generated = \"packages\"'; evil",
    "a folder that is not there": "new gen.toml 'generated = \"packages\"'",
} | {path: f"new {os.path.normpath(f'{PLACE}/{path}')}" for path in NEW.split()}
# these change git's index alone
STAGED = {
    "staged alone": "stage 100644 $M",
    "new and staged alone": "stage 100644 $P/more.py",
    "a staged link": "stage 120000 $P/more.py $(echo /etc/passwd | git hash-object -w --stdin)",
    "a submodule": "stage 160000 $P/more $(git rev-parse HEAD)",
    "a mode in git alone": "git update-index --chmod=+x $M",
    "assumed unchanged": "stage 100644 $M; git update-index --assume-unchanged $M",
    "skipped": "stage 100644 $M; git update-index --skip-worktree $M",
}


def do(repository, script: str) -> None:
    """Runs a script for bash in a repository."""
    env = os.environ | {"PYTHON": sys.executable, "SEAL": SEAL}
    subprocess.run(["bash", "-c", FUNCTIONS + script], cwd=repository.root, env=env, check=True)


@pytest.fixture
def quick(monkeypatch):
    """Starts no processes, and weaves a package once from the same sources."""
    made: dict = {}

    def once(architecture, target, library, parts):
        key = architecture, target, parts, frozenset(library.files.items())
        if key not in made:
            made[key] = weave(architecture, target, library, parts=parts)
        return made[key]

    monkeypatch.setattr("generator.commands.packages.weave_package", once)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)


def test_every_way_is_found(repository, quick):
    """Each is added to git if it can be, found, reported in lines without control characters, and undone."""
    repository.write(".gitignore", "build/\n__pycache__/\n")
    repository.commit("what git ignores")
    repository.run("check", "--full", "--base", "HEAD")
    kept, missed = (repository.root / ".git/index").read_bytes(), []
    for name, way in (WAYS | STAGED).items():
        do(repository, way)
        if name in WAYS:
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
    do(repository, "stale_pyc $P/__pycache__/model.cpython-311.pyc; new $P/.mypy_cache/x.json")
    do(repository, "new generated/one_any.egg-info/top_level.txt")
    repository.run("check", "--full", "--base", "HEAD")
    do(repository, "pyc $P/__pycache__/model.cpython-312.pyc")
    assert "runs in place of its module" in repository.run("check", code=1).stdout


def test_disk_differs_from_the_commit(repository, tmp_path_factory, monkeypatch):
    """That is no fault, as a build is not committed yet; a repository that the environment names is not used."""
    do(repository, "stage 100644 $M; git commit -qm 'an edit that is not on disk'")
    said = repository.run("check", "--full").stdout
    assert f"uncommitted {MODEL}: differs from the last commit: what is on disk was checked" in said
    repository.git("reset", "--hard", "HEAD~1")
    other = tmp_path_factory.mktemp("other")
    subprocess.run(["git", "init", "-q", other], check=True)
    do(repository, "new $P/__pycache__/more.py; git add -f $P")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert "more.py: is tracked by git" in repository.run("check", "--full", code=1).stdout


def test_commands_that_are_printed_mend(repository):
    do(repository, "chmod 755 $M; new generated/.gitattributes '*.py -diff'; git add -A")
    do(repository, "stage 100644 $M; git update-index --assume-unchanged $M")
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
        kept.write_text(ONE)
        said = repository.run(*words, code=1).stdout
        assert "unchecked generated/two_any: is new, and owned by people (by_hand)" in said
        kept.write_text(f"{ONE}{TWO}by_hand = true\n")
        assert "owned    generated/two_any: 0 lines changed in 0 files" in repository.run(*words).stdout

    def test_own_paths_are_told_in_every_run(self, repository):
        repository.write("generated/notes.txt", "mine")
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
    """The reason is reported once for each package, and the command works once .gitattributes has the line."""
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
