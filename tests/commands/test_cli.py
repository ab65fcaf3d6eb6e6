"""The command line as a whole: help, exit codes, mistakes, start-up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = ("build", "check", "cost", "coverage", "diff", "explain", "list", "loc", "new", "points", "trace")
HEAVY = (
    "ruff",
    "concurrent.futures",
    "generator.language.fragment",
    "generator.weave",
    "generator.weaver",
    "importlib.metadata",
    "jinja2",
    "libcst",
)

# what `gen` does, with the built-in library and the weaver of the tests, then the modules that were imported
RUN = """
import sys
from pathlib import Path
import generator.disk.project
builtin = Path(sys.argv.pop(1))
generator.disk.project.builtin_root = lambda: builtin
from generator.commands.cli import gen
try:
    gen()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


# all packages but the first take for ever, in two processes
ENDLESS = """
import os, signal, time
from pathlib import Path
from generator.commands import build
from generator.commands.cli import main
from generator.disk import project
# whatever started the tests may ignore interrupts, and what ignores them hands that on
signal.signal(2, signal.default_int_handler)
project.builtin_root = Path.cwd
os.sched_getaffinity = lambda process: {0, 1}
weave = build.weave
build.weave = lambda name, *more: (name != "one" and time.sleep(60)) or weave(name, *more)
main()
"""


def test_an_interrupt_is_no_difference(repository, tmp_path):
    """Ctrl-C while packages are woven, in all of its processes."""
    for name in "three", "four":
        repository.write(f"templates/architectures/{name}.toml", repository.read("templates/architectures/two.toml"))
        entry = f'[[package]]\narchitecture = "{name}"\ntarget = "any"\n'
        repository.write("generated/packages.toml", repository.read("generated/packages.toml") + entry)
    command = sys.executable, "-c", ENDLESS, "build", "--all", "--out", str(tmp_path / "out")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, cwd=repository.root, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while "[1/" not in (said := process.stderr.readline()):
            assert said, "it ended"
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130 and rest.endswith("stopped\n") and "Traceback" not in rest, rest


def test_version_and_help(workshop):
    assert workshop.run("--version").stdout.startswith("gen ")
    text = workshop.run("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    for command in COMMANDS:
        assert "Exit codes: 0 all is well; 1 " in workshop.run(command, "--help").stdout.replace("\n  ", " ")


def test_list(workshop):
    workshop.build("llama_cpu")
    workshop.list_packages("llama_cpu", "plain_gpu")
    found = json.loads(workshop.run("list", "--json").stdout)
    assert [entry["name"] for entry in found["architectures"]] == ["llama", "plain"]
    assert found["targets"][1] == {"name": "gpu", "title": "One card", "citation": ""}
    assert found["fragments"][3] == {"name": "model/rope", "title": "Rotary positions", "citation": "Su et al., 2021"}
    assert [(entry["name"], entry["built"]) for entry in found["packages"]] == [
        ("llama_cpu", True),
        ("plain_gpu", False),
    ]
    assert "plain_gpu  not built" in workshop.run("list").stdout


def test_unknown_command_and_option(workshop):
    assert "there is no command 'biuld'\n  Did you mean build?" in workshop.run("biuld", code=2).stderr
    assert "No such option" in workshop.run("build", "--taget=cpu", code=2).stderr


@pytest.mark.parametrize("words", [["build", "llama", "--target=cpu", "--own="], ["view", "--out="], ["trace", ""]])
def test_an_empty_path_is_not_the_working_directory(workshop, words):
    before = sorted(workshop.root.rglob("*"))
    assert "is empty: name a path" in workshop.run(*words, code=2).stderr
    assert sorted(workshop.root.rglob("*")) == before


def test_mistake_in_a_file_is_no_traceback(workshop, monkeypatch):
    def fail(*arguments):
        raise PermissionError(13, "Permission denied", "fragments/model/rope.py")

    monkeypatch.setattr("generator.commands.build.weave", fail)
    result = workshop.run("build", "llama", "--target=cpu", code=2)
    assert result.stderr == "error: fragments/model/rope.py: Permission denied\n"


class TestStartUp:
    """What a command imports decides how fast it is."""

    @pytest.fixture
    def run(self, workshop):
        def run(*words: str) -> subprocess.CompletedProcess:
            command = [sys.executable, "-c", RUN, str(workshop.builtin), *words]
            environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
            done = subprocess.run(command, cwd=workshop.root, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done

        return run

    @pytest.mark.parametrize(
        "words",
        [["--help"], ["list"], ["check"], ["build", "llama", "--target=cpu"], ["build", "--all"], ["diff"], ["loc"]],
    )
    def test_nothing_heavy_where_nothing_changed(self, workshop, run, words):
        workshop.build("llama_cpu", "plain_gpu")
        modules = run(*words).stderr.splitlines()[-1].split()
        assert [module for module in modules if module in HEAVY] == []


class TestProcess:
    def gen(self, folder: Path, *words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "generator", *words]
        environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    def test_module_is_the_command(self, tmp_path):
        done = self.gen(tmp_path, "--version")
        assert (done.returncode, done.stdout.split()[0]) == (0, "gen")

    def test_mistake(self, tmp_path):
        (tmp_path / "gen.toml").write_text("generated = \n")
        done = self.gen(tmp_path, "check")
        assert done.returncode == 2
        assert done.stderr.startswith("error: gen.toml:1: not valid TOML")
        assert "Traceback" not in done.stderr

    def test_working_directory_is_gone(self, tmp_path):
        (tmp_path / "gone").mkdir()
        script = f"cd {tmp_path}/gone && rmdir ../gone && PYTHONPATH={REPOSITORY} {sys.executable} -m generator list"
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: the working directory is gone")

    def test_reader_that_stops_reading(self, tmp_path):
        script = f"PYTHONPATH={REPOSITORY} {sys.executable} -m generator list | true"
        done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
