"""The command line of training: flags, and what is refused."""

import dataclasses
import importlib
import sys

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, PRESETS, Config, run_python

requires("train/command")

PUBLISHED = next(name for name in PRESETS if name != "tiny")


def run_command(monkeypatch, *arguments: str) -> int:
    """Runs the command line in this process; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["train", *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("..train", __package__).main()
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--wdith", "3"], ["--wdith", "Perhaps you meant", "--width INT"]),
        (["--width", "x"], ["--width", "invalid literal", "size of the residual stream"]),
        (["--preset", "8"], ["'8'", ", ".join(map(repr, PRESETS))]),
    ],
    ids=lambda x: x[0],
)
def test_flags_that_cannot_be_read(arguments, texts, monkeypatch, capsys):
    assert run_command(monkeypatch, *arguments) == 2
    said = " ".join(capsys.readouterr().err.split())  # lines are folded
    for text in texts:
        assert text in said


SEEN = """
import contextlib, io, runpy, sys
for name in sys.argv[1].split(","):
    sys.argv = [name, "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    print(name, *{"jax", "flax", "orbax", "grain", "optax", "matplotlib"} & sys.modules.keys())
"""


def test_help_and_refusals_import_no_jax():
    """Which takes seconds: a command is parsed and checked before."""
    commands = [x.stem for x in sorted(PACKAGE.glob("*.py")) if "__main__" in x.read_text()]
    light = [f"{PACKAGE.name}.{name}" for name in commands if name not in ("data", "plan", "render")]
    assert {"train", "generate"} <= {*commands}
    assert run_python("-c", SEEN, ",".join(light)).stdout.splitlines() == light
    program = f"import sys\nfrom {PACKAGE.name} import train\ntry: train.main()\nfinally: print('jax' in sys.modules)"
    done = run_python("-c", program, "--preset", "tiny", "--batch-size", "0")
    assert (done.returncode, done.stdout) == (2, "False\n") and "--batch-size 0: must be" in done.stderr


def test_settings_that_do_not_fit(monkeypatch, capsys):
    assert run_command(monkeypatch, "--checkpoint-every", "0") == 2
    assert capsys.readouterr().err == "error: --checkpoint-every 0: must be an integer from 1 to 2,147,483,647\n"
    assert run_command(monkeypatch, "--width", "0", "--learning-rate", "nan", "--warmup-ratio", "1.5") == 2
    said = capsys.readouterr().err  # all at once
    for text in ("--width 0: must be an integer", "--learning-rate nan: must", "--warmup-ratio 1.5: must be"):
        assert text in said
    assert run_command(monkeypatch, "--batch-size", "9", "--accumulation", "2", "--mesh-fsdp", "1") == 2
    said = capsys.readouterr().err
    assert "error: --batch-size 9: must be a multiple of accumulation x data x fsdp" in said and said.endswith(", 2\n")


def test_a_mistake_ends_with_what_is_wrong():
    process = run_python("-m", f"{PACKAGE.name}.train", "--data", "/no/such/file")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "/no/such/file" in process.stderr


def test_help_names_each_field_in_the_group_of_its_class(monkeypatch, capsys):
    assert run_command(monkeypatch, "--help", "--preset", PUBLISHED) == 0
    text = capsys.readouterr().out
    for base, group in zip(Config.__bases__, text.split(" config.")[1:], strict=True):
        assert group.startswith(f"{base.__name__} options")
        for field in dataclasses.fields(base):
            assert f"--{field.name.replace('_', '-')}" in group
    assert f"default: {PRESETS[PUBLISHED].width}" in text  # of the preset


def test_a_store_that_cannot_be_reached_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    assert run_command(monkeypatch, "--preset", "tiny", "--checkpoint-dir", "gs://bucket/run") == 2
    assert "gcs" in (said := capsys.readouterr().err) or "gs://bucket/run: is on no disk" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", "file: cannot be written: Not a directory: give another path"),
        ("file/run", "file/run: cannot be written: Not a directory: give another path"),
        ("a" * 300, "cannot be read or written: File name too long: give another path"),
        ("/proc", "/proc: cannot be written: No such file or directory: give another path"),
        ("/proc/run", "/proc/run: cannot be written: No such file or directory: give another path"),
        ("[1]/run", "which Orbax cannot write to: give another path"),
        ("a\\b", "which Orbax cannot write to: give another path"),
    ],
)
def test_a_path_that_never_will_do_is_a_mistake(name, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("mine")
    assert run_command(monkeypatch, "--preset", "tiny", "--checkpoint-dir", str(tmp_path / name)) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("model")) and (tmp_path / "file").read_text() == "mine"
