"""The command line that prepares data, run in the process of a test."""

import contextlib
import importlib
import io
import subprocess
from unittest import mock

from generator.language import requires
from generator.language.roles import PACKAGE

requires("prepare")


def run_prepare(*arguments: object) -> subprocess.CompletedProcess:
    """Runs the command line in this process; only its workers are separate processes."""
    said, told = io.StringIO(), io.StringIO()
    code = 0
    words = mock.patch("sys.argv", ["data", "prepare", *map(str, arguments)])
    with words, contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        try:
            importlib.import_module(f"{PACKAGE.name}.data").main()
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), told.getvalue())


def refused_prepare(*arguments: object) -> str:
    """Returns the error of a refused command: one line."""
    ended = run_prepare(*arguments)
    assert ended.returncode == 2 and ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr
