"""A project in a git repository: its own fragments, the real weaver, two packages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result
from miniature import PACKAGE

from generator.commands.cli import gen


def findings(project, *words: str, code: int = 1) -> list[dict]:
    """Returns what gen check finds in a project, or in a workshop of tests/conftest.py."""
    found = json.loads(project.run("check", "--json", *words, code=code).stdout)["findings"]
    return [finding for finding in found if finding["state"] != "uncommitted"]


NET = '''\
"""A network.

Source: Somebody 2020, section 1.
"""

import math

from generator.language import point, setting


class Config:
    width: int = 4  # size of a layer
    depth: int = 2  # layers


def scale(x):
    """Makes it larger.

    Twice over.
    """
    y = x * math.pi  # up
    point("scale.more", y)
    with point("scale.result", y):
        z = y + 0
    return z


def model(x, config: Config):
    """The whole."""
    for _ in range(config.depth):
        x = scale(x)
    x = x * setting("gain")
    assert x, "nothing came out"
    return x + config.width
'''
SHIFT = '''\
"""A shift."""

from generator.language import splice


@splice("scale.more")
def _(y):
    y = y + 1
    y = y * y
'''
TOOLS = '''\
"""A tool."""

from generator.language import splice


def helper(x):
    """Helps."""
    if x > 1:
        return x
    return -x


@splice("scale.result")
def _(y, z):
    z = helper(y)
'''
ARCHITECTURE = 'title = "{title}"\nfragments = {fragments}\n[settings]\ngain = {gain}\n'
README = "# {{ title }}\n\nMade for {{ target }}.\n"
TARGET = 'title = "Anywhere"\n[templates]\n"README.md" = "templates/README.md.jinja"\n'
SOURCES = {
    "gen.toml": "",
    "fragments/model/net.py": NET,
    "fragments/model/shift.py": SHIFT,
    "fragments/model/tools.py": TOOLS,
    "templates/architectures/one.toml": ARCHITECTURE.format(
        title="One", fragments='["model/net", "model/shift"]', gain=2
    ),
    "templates/architectures/two.toml": ARCHITECTURE.format(
        title="Two", fragments='["model/net", "model/tools"]', gain=3
    ),
    "templates/package.toml": PACKAGE,
    "templates/README.md.jinja": README,
    "targets/any/target.toml": TARGET,
    ".gitattributes": "generated/** merge=loomax\ngenerated/packages.toml merge\n",
    "generated/packages.toml": '[[package]]\narchitecture = "one"\ntarget = "any"\n\n'
    '[[package]]\narchitecture = "two"\ntarget = "any"\n',
}


class Repository:
    """The project's folder, with gen and git run in it."""

    def __init__(self, root: Path):
        self.root = root
        for path, text in SOURCES.items():
            self.write(path, text)
        self.git("init", "-q", "-b", "main")
        for key, value in {
            "user.name": "A",
            "user.email": "a@b.c",
            "commit.gpgsign": "false",
            "merge.loomax.driver": "false",
        }.items():
            self.git("config", key, value)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(dedent(text) if text.startswith("\n") else text)

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def replace(self, path: str, old: str, new: str) -> None:
        """Changes a text that must stand there once."""
        text = self.read(path)
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}:\n{text}"
        self.write(path, text.replace(old, new))

    def git(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True)
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def run(self, *words: str, code: int | None = 0) -> Result:
        from generator.disk.project import _library

        _library.cache_clear()
        result = CliRunner().invoke(gen, words)
        assert isinstance(result.exception, SystemExit | None), repr(result.exception)
        assert code in (None, result.exit_code), f"exit code {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def package(self, name: str) -> dict[str, bytes]:
        folder = self.root / "generated" / name
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two packages of three fragments, built and committed."""
    monkeypatch.setattr("generator.disk.project.builtin_root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    made = Repository(tmp_path)
    made.run("build", "--all")
    made.commit("start")
    return made
