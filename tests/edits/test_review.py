"""Annotations, the hook and the action, for reviews and CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
# gen whose built-in library is the folder that it runs in
OWN = f"""#!{sys.executable}
from pathlib import Path
from generator.disk import project
project.builtin_root = Path.cwd
if __name__ == "__main__":  # processes that weave import this program
    from generator.__main__ import main
    main()
"""
ONE, NET = "generated/one_any/model.py", "fragments/model/net.py"


def notes(repository, code: int = 1) -> list[str]:
    return repository.run("check", "--format=github", code=code).stdout.splitlines()


class TestAnnotations:
    def test_stale_packages_are_told_once_at_the_fragment(self, repository):
        repository.replace(NET, "# up", "# upward")
        assert notes(repository) == [
            f"::error file={NET},line=21,title=stale::not built yet: {ONE}, generated/two_any/model.py%0Agen build --all"
        ]

    def test_edit_is_told_where_it_is_with_its_fragment(self, repository):
        repository.replace(ONE, "# up", "# up, 100%")
        (note,) = notes(repository)
        assert note.startswith(f"::error file={ONE},line=14,title=edited::was edited since it was built; ")
        assert f"the line comes from {NET}:21: gen pull one_any%0Agen build one --target=any --force" in note

    def test_files_without_lines(self, repository):
        (repository.root / "generated/one_any/README.md").unlink()
        repository.write("generated/two_any/a,b.txt", "x\n")
        gone, foreign = notes(repository)
        assert gone.startswith("::error file=generated/one_any/README.md,title=missing::is gone%0Agen build")
        assert foreign.startswith("::error file=generated/two_any/a%2Cb.txt,title=foreign::was not made by gen")

    def test_error_is_told_at_its_line(self, repository):
        repository.replace(NET, "x * math.pi", "x * nowhere")
        (note,) = notes(repository, code=2)
        assert note.startswith(f"::error file={NET},line=21,title=error::model/net uses nowhere, which no")

    def test_lock_that_alone_is_old(self, repository):
        repository.write(NET, repository.read(NET).replace("section 1.", "section 2."))
        found = notes(repository)
        assert [note.split("title=")[0] for note in found] == [
            f"::error file=generated/{name}_any/gen.lock," for name in ("one", "two")
        ]

    def test_owned_package_is_no_fault(self, repository):
        repository.run("own", "one_any")
        repository.replace(ONE, "# up", "# mine")
        assert notes(repository, code=0) == ["::notice file=generated/one_any,title=owned::1 line changed in 1 file"]

    def test_names_are_escaped(self, repository):
        """No part of a name begins a line or another annotation."""
        repository.write("generated/one_any/a\n::error::b`\x1b[2K\r%0A,c:d.py", "")
        (note,) = notes(repository)
        assert note.startswith(
            r"::error file=generated/one_any/a\n%3A%3Aerror%3A%3Ab`\x1b[2K\r%250A%2Cc%3Ad.py,title=foreign::"
        )
        assert r"a\n::error::b`" in repository.run("check", code=1).stdout


def test_hook_runs_a_command_that_there_is():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *words = hook["entry"].split()
    assert program == "gen"
    done = subprocess.run([sys.executable, "-m", "generator", *words, "--help"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0


@pytest.fixture
def action(tmp_path):
    """Runs a step of the action in a folder as the runner does, by its place, with a gen that is installed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m generator "$@"\n')
    (tmp_path / "bin/gen").chmod(0o755)
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    summary = tmp_path / "summary"
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(summary)}

    def run(place: int, folder: Path, **given: str) -> tuple[int, str, str]:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[place]["run"]]
        summary.write_text("")
        done = subprocess.run(command, cwd=folder, env=environment | given, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr, summary.read_text()

    return run


def test_action_checks(action, repository, tmp_path):
    """A project, as it was built, and as someone edited it."""
    (tmp_path / "bin/gen").write_text(OWN)
    code, said, summary = action(1, repository.root, FULL="--full")
    assert code == 0 and "::error" not in said and "as built" in summary
    repository.replace(ONE, "# up", "# down")
    code, said, summary = action(1, repository.root, FULL="--full")
    assert code == 1 and f"::error file={ONE},line=" in said
    assert f"edited   {ONE}" in summary


def test_action_says_what_a_change_means(action, repository, tmp_path):
    """A clone without history, as a runner has it, fetches the commit to compare with."""
    base = repository.git("rev-parse", "HEAD").strip()
    repository.replace(NET, "# up", "# upward")
    repository.git("commit", "--all", "--message", "a comment")
    clone = tmp_path / "clone"
    (tmp_path / "bin/gen").write_text(OWN)
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{repository.root}", clone], check=True)
    code, _, summary = action(2, clone, AGAINST=base)
    assert code == 0
    assert "2 packages, 2 with another text; no package is another program" in summary
    code, said, _ = action(2, clone, AGAINST="0" * 40)
    assert code != 0 and said


@pytest.mark.parametrize("options", ([], ["--markdown"]))
def test_meaning_of_a_change_says_what_it_leaves_out(repository, options):
    repository.replace("fragments/model/shift.py", "y + 1", "y + nowhere")
    found = repository.run("diff", "--against", "HEAD", *options, code=2).stdout
    assert "1 package, 0 with another text; none of them is another program; packages that cannot be woven" in found
    assert ("error: fragments/model/shift.py" in found) == bool(options)
