"""Building every package of a project."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = str(Path(__file__).resolve().parents[2])
# gen build --all in two processes, which do what `weave` does: they import this program before their first job
PROGRAM = """
import os, sys, time
from pathlib import Path
import generator.commands.packages, generator.disk.project
from conftest import Files, weave_files
generator.disk.project.builtin_root = lambda: Path(sys.argv[1])
generator.disk.project.Project.library = lambda project: Files(project.roots)
os.sched_getaffinity = lambda process: {{0, 1}}
def weave(*_):
    {weave}
generator.commands.packages.weave_package = weave
if __name__ == "__main__":
    from generator.commands.cli import gen
    gen(["build", "--all"])
"""
ENDLESS = 'os.write(1, f"{os.getpid()}\\n".encode()); time.sleep(1000)'
KILLED = "os.kill(os.getpid(), 9)"
FILES = "return weave_files(*_)"


def build_all(workshop, weave: str, **options) -> subprocess.Popen:
    """Starts gen build --all, whose processes run `weave` in place of weaving."""
    program = workshop.root.parent / "program.py"
    program.write_text(PROGRAM.format(weave=weave))
    command = [sys.executable, str(program), str(workshop.builtin)]
    environment = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests"}
    return subprocess.Popen(command, cwd=workshop.root, env=environment, text=True, **options)


class TestAll:
    NAMES = ("llama_cpu", "llama_gpu", "plain_cpu", "plain_gpu")

    def test_makes_in_parallel_what_single_builds_make(self, workshop):
        workshop.build(*self.NAMES)
        single = {name: workshop.tree(name) for name in self.NAMES}
        for name in self.NAMES:
            workshop.remove(name)
        workshop.list_packages(*self.NAMES)
        command = build_all(workshop, FILES, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, progress = command.communicate()
        assert [line.split(":")[0] for line in output.splitlines()] == [f"generated/{n}" for n in self.NAMES]
        assert progress.splitlines()[0] == "[1/4] llama_cpu: 6 written, 0 unchanged"
        assert {name: workshop.tree(name) for name in self.NAMES} == single

    def test_without_a_list_builds_what_was_built_before(self, workshop):
        workshop.build("llama_cpu", "plain_gpu")
        workshop.source("fragments/model/attention.py", "x = 1\n")
        workshop.run("build", "--all")
        assert all(b"x = 1" in workshop.tree(name)["model.py"] for name in ("plain_gpu", "llama_cpu"))

    def test_one_mistake_does_not_stop_the_others(self, workshop):
        workshop.list_packages("llama_cpu", "lama_cpu", "plain_cpu")
        error = workshop.run("build", "--all", code=2).stderr
        assert re.search("error: generated/packages.toml:[0-9]+: unknown architecture 'lama'", error)
        assert "unknown architecture 'lama'" in workshop.run("list", code=2).stderr
        assert (workshop.generated / "plain_cpu/model.py").exists()

    @pytest.mark.parametrize("signal", [9, 15])
    def test_no_process_outlives_the_command(self, workshop, signal):
        workshop.list_packages("llama_cpu", "plain_cpu")
        parent = build_all(workshop, ENDLESS, stdout=subprocess.PIPE)
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert parent.pid not in workers
        parent.send_signal(signal)
        assert parent.wait() == -signal
        closed, _, _ = select.select([parent.stdout], [], [], 10)
        if not closed:
            for worker in workers:
                os.kill(worker, 9)
        assert closed, "the processes still held the pipe"
        parent.stdout.close()

    def test_process_that_is_killed_is_an_error(self, workshop):
        workshop.list_packages("llama_cpu", "plain_cpu")
        command = build_all(workshop, KILLED, stderr=subprocess.PIPE)
        assert "a process that weaves was killed" in command.communicate()[1] and command.returncode == 2
