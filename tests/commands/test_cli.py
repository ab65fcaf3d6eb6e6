"""The command line as a whole: help, exit codes, mistakes, start-up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from generator.commands.cli import gen

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = {
    "black",
    "libcst",
    "ruff",
    "concurrent.futures",
    "generator.language.fragment",
    "generator.weave",
    "generator.weaver",
}
HEAVY |= {"importlib.metadata", "jinja2", "packaging"}

# what `gen` does, with the built-in library and the weaver of the tests, then the modules that were imported
RUN = """
import sys
import time
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


# all packages but the first take for ever, in two processes, which import this program before their first job
ENDLESS = """
import os, signal, time
from pathlib import Path
from generator.commands import packages
from generator.commands.cli import main
from generator.disk import project
# whatever started the tests may ignore interrupts, and what ignores them hands that on
signal.signal(2, signal.default_int_handler)
project.builtin_root = Path.cwd
os.sched_getaffinity = lambda process: {0, 1}
weave = packages.weave_package
packages.weave_package = lambda name, *more: (name != "one" and time.sleep(60)) or weave(name, *more)
if __name__ == "__main__":
    main()
"""


def test_an_interrupt_is_no_difference(repository, tmp_path):
    """Ctrl-C while packages are woven ends all of its processes, and begins no other package."""
    for name in "three", "four":
        repository.write(f"templates/architectures/{name}.toml", repository.read("templates/architectures/two.toml"))
        entry = f'[[package]]\narchitecture = "{name}"\ntarget = "any"\n'
        repository.write("generated/packages.toml", repository.read("generated/packages.toml") + entry)
    program = tmp_path / "program.py"
    program.write_text(ENDLESS)
    command = sys.executable, str(program), "build", "--all", "--out", str(tmp_path / "out")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, cwd=repository.root, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while "[1/" not in (said := process.stderr.readline()):
            assert said, "it ended"
        os.killpg(process.pid, signal.SIGINT)
        start, rest = time.monotonic(), process.stderr.read()
        assert time.monotonic() - start < 30, "it wove on"
    assert process.returncode == 130 and rest.endswith("stopped\n") and "Traceback" not in rest, rest


def test_version_and_help(workshop):
    assert workshop.run("--version").stdout.startswith("gen ")
    text = workshop.run("--help").stdout
    assert {"build", "check", "view"} <= {*gen.list_commands(None)}
    for name in gen.list_commands(None):
        command = gen.get_command(None, name)
        assert isinstance(command, click.Command) and command.name == name
        assert f"\n  {name} " in text and command.help.split()[:3] == gen.summaries[name].split()[:3]
        assert "Exit codes: 0 all is well; 1 " in workshop.run(name, "--help").stdout.replace("\n  ", " ")


def test_list(workshop):
    workshop.build("llama_cpu")
    workshop.list_packages("llama_cpu", "plain_gpu")
    found = json.loads(workshop.run("list", "--json").stdout)
    assert [entry["name"] for entry in found["architectures"]] == ["llama", "plain"]
    assert found["targets"][1] == {"name": "gpu", "title": "One card", "citation": ""}
    assert found["fragments"][3] == {"name": "model/rope", "title": "Rotary positions", "citation": "Su et al., 2021"}
    packages = [(entry["name"], entry["built"]) for entry in found["packages"]]
    assert packages == [("llama_cpu", True), ("plain_gpu", False)]
    assert "plain_gpu  not built" in workshop.run("list").stdout
    assert workshop.run("list", "targets").stdout.split()[:4] == ["Targets", "target", "title", "cpu"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["biuld"], "there is no command 'biuld'\n  Did you mean build?"),
        (["build", "--taget=cpu"], "No such option"),
        (["build", "llama", "--target=cpu", "--own="], "is empty: name a path"),
        (["view", "--out="], "is empty: name a path"),
        (["trace", ""], "is empty: name a path"),
    ],
)
def test_mistakes(workshop, words, said):
    before = sorted(workshop.root.rglob("*"))
    assert said in workshop.run(*words, code=2).stderr
    assert sorted(workshop.root.rglob("*")) == before


def test_file_that_may_not_be_read_is_no_traceback(workshop, monkeypatch):
    def fail(*arguments):
        raise PermissionError(13, "Permission denied", "fragments/model/rope.py")

    monkeypatch.setattr("generator.commands.packages.weave_package", fail)
    result = workshop.run("build", "llama", "--target=cpu", code=2)
    assert result.stderr == "error: fragments/model/rope.py: Permission denied\n  Give another path, or make room.\n"


@pytest.mark.parametrize("words", ["--help", "list", "check", "build llama --target=cpu", "build --all", "diff", "loc"])
def test_nothing_heavy_is_imported_where_nothing_changed(workshop, words):
    workshop.build("llama_cpu", "plain_gpu")
    command = [sys.executable, "-c", RUN, str(workshop.builtin), *words.split()]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    done = subprocess.run(command, cwd=workshop.root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stderr.splitlines()[-1].split())


class TestProcess:
    def run(self, folder: Path, script: str) -> subprocess.CompletedProcess:
        script = script.replace("gen ", f"{sys.executable} -m generator ", 1)
        environment = {
            "PYTHONPATH": str(REPOSITORY),
            "LC_ALL": "C",
            "PYTHONCOERCECLOCALE": "0",
            "PATH": "/bin:/usr/bin",
        }
        done = subprocess.run(["/bin/sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return done

    def test_module_is_the_command(self, tmp_path):
        done = self.run(tmp_path, "gen --version")
        assert (done.returncode, done.stdout.split()[0]) == (0, "gen")

    def test_mistake(self, tmp_path):
        (tmp_path / "gen.toml").write_text("generated = \n")
        done = self.run(tmp_path, "gen check")
        assert done.returncode == 2 and done.stderr.startswith("error: gen.toml:1: not valid TOML")

    def test_working_directory_is_gone(self, tmp_path):
        done = self.run(tmp_path, "mkdir gone && cd gone && rmdir ../gone && gen list")
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: the working directory is gone")

    def test_reader_that_stops_reading(self, tmp_path):
        self.run(tmp_path, "gen list | true")
