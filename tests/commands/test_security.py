"""SECURITY.md is right about the commands that execute fragments, and about what these can read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from generator.commands.cli import gen
from generator.programs.verdicts import KEPT, SCRATCH, PackageVersion, run_module

SECURITY = (Path(__file__).parents[2] / "SECURITY.md").read_text()
EXECUTE = {"diff", "new", "parity", "pull", "start"}  # `diff` and `pull` with an option alone
SECRETS = ("GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "MY_PASSWORD")
SECRETS += ("GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "GIT_ASKPASS", "PIP_INDEX_URL", "XDG_CONFIG_HOME")
TEMPORARY = {"TMPDIR", "TEMP", "TMP", "SYSTEMROOT"}
LOOKS = """
import json, os, pathlib, sys
seen = {"environment": dict(os.environ), "home": os.path.expanduser("~"), "input": sys.stdin.read()}
try:
    seen["parent"] = len(open(f"/proc/{os.getppid()}/environ", "rb").read())
except OSError:
    seen["parent"] = 0
pathlib.Path(PLACE).write_text(json.dumps(seen))
"""


def test_the_table_has_each_command():
    rows = [row.split("|")[1:3] for row in SECURITY.splitlines() if row.startswith("| `gen ")]
    (nothing,) = [re.findall(r"`gen (\w+)`", commands) for commands, what in rows if what.strip() == "nothing"]
    executing = {
        name for commands, what in rows for name in re.findall(r"`gen (\w+)", commands) if "nothing" not in what
    }
    assert executing == EXECUTE
    assert sorted({*nothing, "new", "parity", "start"}) == gen.list_commands(None)
    names = re.search(r"of the environment (.*?), the locale", SECURITY)[1]
    assert set(re.findall(r"`(\w+)`", names)) == {"PATH", "LD_LIBRARY_PATH"} <= set(KEPT)
    assert not set(KEPT) - {"PATH", "LD_LIBRARY_PATH"} - {"LANG", "LC_ALL", "LC_CTYPE", "TZ"} - TEMPORARY


def test_what_is_said_to_execute_nothing_executes_nothing(repository, tmp_path):
    """Has a fragment that writes a file when its module is imported or its function is called."""
    ran = tmp_path / "ran"
    repository.replace("fragments/model/net.py", "import math\n\n", "import math\nfrom pathlib import Path\n\n")
    code = f'MADE = Path("{ran}").write_text("x")'
    repository.replace("fragments/model/net.py", "def scale(x):", f"{code}\n\n\ndef scale(x):")
    repository.replace("fragments/model/net.py", "x * math.pi", f'x * math.pi + MADE + Path("{ran}").write_text("x")')
    repository.run("build", "--all")
    for words in (
        "check --full",
        "list",
        "points",
        "explain generated/one_any/model.py:9",
        "loc --feature model/shift",
        "diff one_any two_any",
        "diff",
        "view --out site",
        "own two_any",
        "update two_any",
        "merge",
        "pull one_any",
        "pull one_any --as fragments/model/mine.py",
        "trace log",
        "cost log",
        "coverage log",
    ):
        repository.write("log", 'File "generated/one_any/model.py", line 9, in scale\n')
        assert repository.run(*words.split(), code=None).exit_code in (0, 1, 2), words
        assert not ran.exists(), words
    assert repository.read("generated/one_any/model.py").count("write_text") == 2
    subprocess.run([sys.executable, "-c", "import one_any.model"], cwd=repository.root / "generated", check=True)
    assert ran.exists(), "it would have been seen"


@pytest.mark.parametrize("module", ["trace", "values"])
def test_fragments_that_run_see_no_secret(module, tmp_path, monkeypatch):
    """Nor the home folder or the input; SECURITY.md says that /proc shows gen's own environment."""
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret-{name}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place, folder = tmp_path / "seen", tmp_path / f"{SCRATCH}1"
    code = f"PLACE = {str(place)!r}\n{LOOKS}"
    version = PackageVersion("taken", {"__init__.py": b"", "config.py": code.encode()})
    run_module(module, version, str(folder), *(["{}"] if module == "values" else []))
    seen = json.loads(place.read_text())
    assert seen["environment"].keys().isdisjoint(SECRETS)
    assert "secret-" not in json.dumps(seen)
    assert (seen["home"], seen["input"]) == (str(folder), "")
    assert not seen["parent"] or "`/proc/PID/environ`" in SECURITY
