"""Damaged locks, maps and settings: never a traceback, a hang, lost work or silence.

Each case changes one file of a project and runs every command that reads it. ALL_BAD_INPUT=1 tries many more.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from hashlib import sha256

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen

CASES = 300 if os.environ.get("ALL_BAD_INPUT") else 8
LOCK, MAP = "generated/llama_cpu/gen.lock", "generated/llama_cpu/gen.map"
LIST, SETTINGS = "generated/packages.toml", "gen.toml"
MINE = {
    "generated/plain_cpu/model.py": "mine = 1\n",
    "generated/llama_cpu/notes.md": "mine\n",
    "victim.py": "mine\n",
    "frames.txt": '  File "generated/llama_cpu/model.py", line 3, in f\n',
    "run.json": '{"files": {"generated/llama_cpu/model.py": {"executed_lines": [3]}}}',
}
COMMANDS = """
diff
diff llama_cpu llama_gpu
explain generated/llama_cpu/model.py:3
explain --fragment rope
trace frames.txt
coverage run.json
list
loc
check --full
build --all --dry-run
build llama --target=cpu
build --all
"""
ODD = (
    None, True, 3, -1, 10**400, 1.5, "", "x", "../../victim.py", "/etc/passwd", "a\0b", "\ud800", "x" * 100_000, [], {},
    [[]], {"": ""}, [None], {"a": {"b": 3}}, "0" * 64, "model.py",
)  # fmt: skip
ODD_TOML = (
    "", "3", "true", "1e400", "9" * 5000, "2020-01-01", '"\\u0000"', '"../.."', '"x y"', "[" * 5000, "{}", "[[]]",
)  # fmt: skip


class Hang(BaseException):
    """A command took too long."""


class Bench:
    """A project with three packages and work of somebody's own, which can be restored."""

    def __init__(self, workshop):
        self.root = workshop.root
        (self.root / SETTINGS).write_text('generated = "generated"\n')
        workshop.list_packages("llama_cpu", "llama_gpu", "plain_cpu")
        workshop.run("build", "--all")
        for path, text in MINE.items():
            (self.root / path).write_text(text)
        (self.root / LIST).write_text('own = ["llama_cpu/notes.md"]\n' + (self.root / LIST).read_text())
        self.good = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        self.said = self.run("check")

    def restore(self) -> None:
        for entry in self.root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        for path, data in self.good.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def run(self, *words: str) -> str:
        """Returns what a command prints; it must neither raise nor hang."""

        def stop(*_):
            raise Hang(words)

        signal.signal(signal.SIGALRM, stop)
        signal.alarm(60)
        try:
            result = CliRunner().invoke(gen, words)
        finally:
            signal.alarm(0)
        if not isinstance(result.exception, SystemExit | None):
            raise result.exception
        assert result.exit_code in (0, 1) or "error: " in result.stderr, words
        assert result.output
        return result.output

    def hold(self, seen: bool = True) -> None:
        """Runs all commands on the damaged project, and restores it; with `seen`, the check must not be as before."""
        assert not seen or self.run("check") != self.said, "gen check said nothing"
        for line in COMMANDS.strip().split("\n"):
            self.run(*line.split())
            for path, text in MINE.items():
                places = [self.root / path, self.root / path.replace("generated/", "moved/")]
                assert text in [place.read_text() for place in places if place.is_file()], (line, path)
        self.restore()


@pytest.fixture
def bench(workshop, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)  # processes would take the time
    return Bench(workshop)


def spoil(data: bytes, chance: random.Random) -> bytes:
    """Damages a text at random."""
    at, to, lines = chance.randrange(len(data)), chance.randrange(len(data)), data.splitlines(keepends=True)
    line = chance.randrange(len(lines))
    return chance.choice([
        data[:at],
        data[:at] + data[to:],
        data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
        b"".join(lines[:line] + lines[line + 1 :]),
        b"".join(lines[: line + 1] + lines[line:]),
        data + data,
        b"<<<<<<< ours\n" + data,
        b"[" * 100_000,
        b'{"files":' * 10_000,
        data.decode().encode("utf-16"),
    ])  # fmt: skip


def alter(table: dict, chance: random.Random) -> None:
    """Puts something odd at a random place of a table, or takes something out."""
    place: dict | list = table
    while True:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]  # type: ignore[index]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
            break
        place = inner
    if chance.random() < 0.2:
        del place[key]  # type: ignore[arg-type]
    elif chance.random() < 0.2 and isinstance(place, dict) and isinstance(odd := chance.choice(ODD), str):
        place[odd] = place.pop(key)
    else:
        place[key] = chance.choice(ODD)  # type: ignore[index]


def put_table(bench, path: str, table: dict, sealed: bool) -> None:
    """Writes the table of a lock or of a map; with `sealed`, the lock is as gen would seal it."""
    lock = bench.root / LOCK
    if path == MAP:
        (bench.root / MAP).write_bytes(json.dumps(table).encode())
        if not sealed:
            return
        digest, table = sha256((bench.root / MAP).read_bytes()).hexdigest(), json.loads(lock.read_bytes())
        table["outputs"]["gen.map"] = digest
    if sealed:
        table.pop("seal", None)
        text = json.dumps(table, sort_keys=True, ensure_ascii=False)
        table["seal"] = sha256(text.encode(errors="surrogatepass")).hexdigest()
    text = json.dumps(table, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    lock.write_bytes(text.encode(errors="surrogatepass"))


@pytest.mark.parametrize("path", [LOCK, MAP, LIST, SETTINGS])
def test_spoilt_text(bench, path):
    chance, file = random.Random(path), bench.root / path
    good = file.read_bytes()
    for bad in dict.fromkeys(spoil(good, chance) for _ in range(CASES)):
        if bad == good:
            continue
        file.write_bytes(bad)
        bench.hold(seen=path in (LOCK, MAP))  # damage to a space of TOML is none


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("path", [LOCK, MAP])
def test_odd_tables(bench, path, sealed):
    chance, good = random.Random(path), (bench.root / path).read_bytes()
    for _ in range(CASES):
        table = json.loads(good)
        alter(table, chance)
        if table != json.loads(good):
            put_table(bench, path, table, sealed)
            bench.hold(seen=not sealed)


@pytest.mark.parametrize("path", [LIST, SETTINGS])
def test_odd_settings(bench, path):
    file = bench.root / path
    lines = file.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines[:4]):
        for odd in ODD_TOML:
            file.write_text("".join([*lines[:number], f"{line.partition('=')[0]}= {odd}\n", *lines[number + 1 :]]))
            bench.hold(seen=path == LIST or odd != '"x y"')


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device", "unreadable"])
@pytest.mark.parametrize(
    "path", [LOCK, MAP, LIST, SETTINGS, "generated/llama_cpu/model.py", "generated/llama_cpu/docs", "generated/llama_gpu",
             "generated", "generated/llama_cpu/.gen.pending", "generated/llama_cpu/.gen.tmp"]
)  # fmt: skip
def test_odd_files(bench, path, kind):
    file = bench.root / path
    if (kind == "unreadable" and os.geteuid() == 0) or (kind == "folder" and file.is_dir()):
        pytest.skip("root may read everything, and a folder is one")
    if file.is_dir():
        file.rename(bench.root / "moved")
    else:
        file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "unreadable":
        file.touch(mode=0)
    else:
        file.symlink_to(file if kind == "loop" else "/dev/zero")
    bench.hold(seen=not path.endswith(".gen.tmp"))
