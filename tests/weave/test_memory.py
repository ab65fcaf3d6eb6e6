"""What a process remembers of one package changes nothing in the next one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from generator.disk.project import Project

ROOT = Path(__file__).resolve().parents[2]
WEAVE = """
import hashlib, json, sys
from generator.code.sourcemap import format_map
from generator.disk.project import Project
from generator.weaver import weave

project = Project.find()
for name in sys.argv[1:]:
    package = weave(*name.rsplit("_", 1), project.library())
    woven = json.dumps([package.files, format_map(package.origins), package.inputs])
    print(json.dumps([name, hashlib.sha256(woven.encode()).hexdigest()]))
"""
NAMES = [combination.name for combination in Project.find(ROOT).packages()]


def woven(names: list[str]) -> list[tuple[str, str]]:
    """The packages that a new process weaves one after the other, and the hash of each."""
    command = [sys.executable, "-c", WEAVE, *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [(name, digest) for name, digest in map(json.loads, run.stdout.splitlines())]


@pytest.mark.slow
def test_what_was_woven_before_does_not_matter():
    """Each package is made of the same bytes: after those before it, after those behind it, once more, and alone."""
    forward, backward = woven(NAMES), woven([*reversed(NAMES), *NAMES])
    alone = [package for name in (NAMES[2], NAMES[-1]) for package in woven([name])]
    assert len(forward) == len(NAMES)
    assert {*backward, *alone} == set(forward)
