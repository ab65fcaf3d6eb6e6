"""gen trace: tracebacks of real runs of woven packages, with the fragment line of each frame."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from selected import mostly_slow

from generator.commands.cli import gen

REPOSITORY = Path(__file__).resolve().parents[2]
ANNOTATION = re.compile(rb".*  -> (\S+):(\d+) \((\S+)\)(.*)\n")
CALLS = "from llama_cpu.model import attend, rotate\n"
GROUP = """
errors = []
for call in (attend, rotate):
    try:
        call("a", "b")
    except TypeError as error:
        errors.append(error)
raise ExceptionGroup("two", errors)
"""
CHAIN = 'try:\n    attend("a", "b")\nexcept TypeError:\n    rotate("a", "b")\n'


@pytest.fixture
def built(workshop):
    workshop.build("llama_cpu")
    return workshop


def python(program: str, folder: Path, **environment: str) -> bytes:
    """Returns what a failing program writes to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, env=os.environ | environment, timeout=300
    )
    assert done.returncode, done.stdout
    return done.stderr


def trace(data: bytes) -> list[bytes]:
    """Returns the lines of gen trace, and checks that the input remains to the byte without the added ones."""
    result = CliRunner().invoke(gen, ["trace"], input=data)
    assert result.exit_code == 0, result.output
    lines = result.stdout_bytes.splitlines(keepends=True)
    assert b"".join(line for line in lines if not ANNOTATION.fullmatch(line)) == data
    return lines


def annotations(data: bytes, sources: Path) -> list[tuple[str, str]]:
    """Returns the added fragment lines with their notes, and checks that source text in frames is the fragment's."""
    lines, result = trace(data), []
    for number, line in enumerate(lines):
        if match := ANNOTATION.fullmatch(line):
            path, row, note = match[1].decode(), int(match[2]), match[4].decode()
            result.append((f"{path}:{row}", note))
            following = re.sub(rb"\x1b\[[0-9;]*m|[ |>]", b"", lines[number + 1]).strip().decode()
            text = (sources / path).read_text().splitlines()[row - 1].replace(" ", "")
            assert note or following in ("", text) or b".py" in lines[number - 1][:40]
    return result


ROTATE = CALLS + 'rotate("a", "b")'
AT_ROPE, AT_ATTENTION = "fragments/model/rope.py:8", "fragments/model/attention.py:8"


class TestPython:
    def test_line_stands_below_its_frame(self, built):
        data = python(ROTATE, built.generated)
        assert b"    ~~^~~" in data or b"^^" in data, "carets are between the frames"
        assert annotations(data, built.builtin) == [(AT_ROPE, "")]
        lines = trace(data)
        at = next(number for number, line in enumerate(lines) if b"->" in line)
        assert lines[at - 1].startswith(b'  File "') and lines[at - 1].endswith(b'model.py", line 9, in rotate\n')
        assert lines[at + 1] == b"    return x * angles\n"

    @pytest.mark.parametrize("program", [CHAIN, GROUP], ids=["chained", "exception group"])
    def test_several_frames(self, built, program):
        data = python(CALLS + program, built.generated)
        assert [place for place, _ in annotations(data, built.builtin)] == [AT_ATTENTION, AT_ROPE]
        bars = b"    |     -> fragments/model/rope.py:8 (model/rope)\n"
        assert (bars in trace(data)) == (program is GROUP)

    def test_text_around_it(self, built):
        """A log, the prefix of a launcher, and other line ends."""
        data = python(ROTATE, built.generated)
        log = b"step 1 loss 2.5\r\n\xff\x00 no text \x1b[31m\n\n" + data + b"model.py:9 in a log\n" + b"x" * 20_000
        assert len(trace(log)) == len(log.splitlines(keepends=True)) + 1
        prefixed = b"".join(b"[rank0]: " + line for line in data.splitlines(keepends=True))
        assert b"[rank0]:     -> fragments/model/rope.py:8 (model/rope)\n" in trace(prefixed)
        ended = data.replace(b"\n", b"\r\n")
        written = CliRunner().invoke(gen, ["trace"], input=ended).stdout_bytes
        line = b"    -> fragments/model/rope.py:8 (model/rope)\r\n"
        assert written.count(line) == 1 and written.replace(line, b"") == ended
        frame = f'  File "{built.generated}/llama_cpu/model.py", line 9, in rotate'
        written = CliRunner().invoke(gen, ["trace"], input=frame.encode()).stdout
        assert written == f"{frame}\n    -> fragments/model/rope.py:8 (model/rope)"

    def test_what_has_no_fragment_is_left_alone(self, built):
        path = f"{built.generated}/llama_cpu/model.py"
        others = python("import json\njson.loads('{')", built.root)
        missing = (f'  File "{path}", line {line}, in f\n'.encode() for line in ("999", "9" * 5000))
        for data in (others, *missing):
            assert b".py" in data and b"".join(trace(data)) == data


class TestUncertain:
    def test_edited_file(self, built):
        path = built.generated / "llama_cpu/model.py"
        path.write_text(path.read_text() + "mine = 1\n")
        ((place, note),) = annotations(python(ROTATE, built.generated), built.builtin)
        assert place.endswith("rope.py:8") and "was edited since it was woven: lines may be off" in note

    def test_package_that_was_built_again(self, built):
        data = python(ROTATE, built.generated)
        source = built.builtin / "fragments/model/rope.py"
        source.write_text(source.read_text().replace("return x * angles", "y = 1\n    return x * angles * y"))
        ((_, note),) = annotations(data, built.builtin)
        assert "fragments/model/rope.py changed since it was woven" in note
        built.run("build", "--all")
        ((_, note),) = annotations(data, built.builtin)
        assert "the line reads otherwise now: lines may be off" in note

    def test_package_that_is_gone(self, built):
        shutil.copytree(built.generated, built.root / "elsewhere")
        data = python(ROTATE, built.root / "elsewhere")
        assert annotations(data, built.builtin) == [(AT_ROPE, "")], "a copy has its map"
        (built.root / "elsewhere/llama_cpu/gen.lock").unlink()
        assert annotations(data, built.builtin) == [(AT_ROPE, "")], "the same text is in generated/"
        (built.root / "elsewhere/llama_cpu/model.py").unlink()
        ((place, note),) = annotations(data, built.builtin)
        assert place == AT_ROPE
        assert "the file is not there, so this is of generated/llama_cpu/model.py: lines may be off" in note

    def test_broken_lock_is_reported(self, built):
        data = python(ROTATE, built.generated)
        (built.generated / "llama_cpu/gen.lock").write_text("{}")
        result = CliRunner().invoke(gen, ["trace"], input=data)
        assert result.stdout_bytes == data and "is not a lock of gen" in result.stderr and result.exit_code == 0


class TestOthers:
    @pytest.mark.parametrize(
        ("style", "colour"),
        mostly_slow(
            [(style, colour) for style in ("short", "long", "native") for colour in ("yes", "no")], ("long", "yes")
        ),
    )
    def test_pytest(self, built, style, colour):
        (built.generated / "test_it.py").write_text(f'{CALLS}\ndef test_it():\n    rotate("a", "b")\n')
        command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider"]
        command += [f"--tb={style}", f"--color={colour}", "test_it.py"]
        data = subprocess.run(command, cwd=built.generated, capture_output=True).stdout
        assert (AT_ROPE, "") in annotations(data, built.builtin)

    def test_jax(self, monkeypatch):
        """A traceback that JAX filters, and its note on the origin of a tracer, of a committed package."""
        monkeypatch.chdir(REPOSITORY)
        program = """
import jax, jax.numpy as jnp
from llama2_cpu.model import rotate
jax.jit(rotate)(jnp.ones((1, 2, 3, 4)), jnp.ones((9, 9)))
"""
        data = python(program, REPOSITORY / "generated", JAX_PLATFORMS="cpu")
        assert b"JAX" in data
        lines = trace(data)
        at = next(number for number, line in enumerate(lines) if b"-> fragments/model/rope.py" in line)
        path, row = ANNOTATION.fullmatch(lines[at]).groups()[:2]
        source = (REPOSITORY / path.decode()).read_text().splitlines()[int(row) - 1]
        assert lines[at + 1].strip().decode() == source.strip()

    def test_places_in_messages_of_jax(self, built):
        path = built.generated / "llama_cpu/model.py"
        for text in (f"traced the function f at {path}:9 for jit.\n", f"was created on line {path}:9:4 (rotate)\n"):
            assert trace(text.encode())[1] == b"  -> fragments/model/rope.py:8 (model/rope)\n"


class TestMistakes:
    def test_files(self, built):
        assert "nothing.txt: No such file" in built.run("trace", "nothing.txt", code=2).stderr
        built.run("trace", str(built.root), code=2)
