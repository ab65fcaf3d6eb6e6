"""`gen start`: from a checkpoint to a package with its weights, and the commands after it; what is there stays."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkpoints import ENVIRONMENT, ask, make_checkpoint, run, serving
from click.testing import CliRunner

from generator.commands.cli import gen

ROOT = str(Path(__file__).resolve().parents[2])
FAMILIES = [
    *(
        "llama2",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma2",
        "gemma3",
        "phi3",
        "mistral",
        "olmo2",
        "gpt_oss",
        "deepseek_v2",
    ),
    *("granite", "lfm2", "mamba2"),
]
QUIET = ("--target=cpu", "--no-parity")


def start(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(gen, ["start", *words])
    assert done.exit_code == code, (done.output, done.exception)
    assert "Traceback" not in done.output
    return done.output


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file with its size and the time of its last change."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {str(path.relative_to(folder)): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, with a checkpoint of llama2 in Tiny-1B/."""
    monkeypatch.chdir(tmp_path)
    make_checkpoint(Path("Tiny-1B"), "llama2")
    return tmp_path


def programs_of(output: str) -> list[str]:
    """The commands that come next, of which training has fewer steps."""
    printed = output.partition("What comes next:")[2]
    return [line.strip().replace("--steps 100", "--steps 2") for line in printed.splitlines() if line.startswith("  ")]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_from_a_folder_to_an_answer(tmp_path, family):
    make_checkpoint(tmp_path / "Tiny-1B", family)
    done = run("gen start Tiny-1B --target=cpu", tmp_path)
    assert re.search(r"^all \d+ hold$", done.stdout, re.MULTILINE)
    cd, train, evaluate, serve = programs_of(done.stdout)
    assert cd == "cd generated"
    for command in train, evaluate:
        run(command, tmp_path / "generated")
    assert (tmp_path / "runs/tiny_1b/2").is_dir()
    with serving(serve, tmp_path / "generated") as port:
        assert ask(port) == "assistant"


@pytest.mark.slow
def test_a_second_run_changes_nothing_and_a_damaged_checkpoint_leaves_nothing(folder):
    first = start("Tiny-1B", *QUIET)
    assert "the architecture llama2 fits it as it is\n$ gen build llama2 --target=cpu --with=chat_data" in first
    assert "$ cd generated && " in first and "-m llama2_cpu.checkpoint import ../Tiny-1B ../runs/tiny_1b\n" in first
    Path("train.jsonl").write_text("mine")
    before = files(folder)
    again = start("Tiny-1B", *QUIET)
    assert "as it should be" in again and "runs/tiny_1b: is there already, and stays as it is" in again
    assert files(folder) == before
    assert programs_of(again) == programs_of(first) and len(programs_of(again)) == 4
    # another checkpoint under the same name, and one of which a half is missing
    shutil.copytree("Tiny-1B", "half")
    os.truncate("half/model.safetensors", 9000)
    settings = json.loads(Path("half/config.json").read_text())
    Path("half/config.json").write_text(json.dumps(settings))
    assert "runs/tiny_1b: is there already, and is no run of half" in start("half", *QUIET, "--name=tiny_1b", code=2)
    assert "half/model.safetensors: cannot be read as safetensors" in start("half", *QUIET, code=2)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["tiny_1b"]


def test_a_config_alone_begins_from_random_weights(folder, monkeypatch):
    """Without torch nothing is compared, which is told; `python` is printed where it is the one that runs gen."""
    monkeypatch.setenv("PATH", ENVIRONMENT["PATH"])
    monkeypatch.setattr(sys, "executable", str(Path(sys.executable).with_name("python3")))
    shutil.copy("Tiny-1B/config.json", "config.json")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    output = start("config.json", "--target=cpu", "--name=mine")
    assert "templates/architectures/mine.toml: as llama2\n" in output and not Path("runs").exists()
    assert "note: not compared with transformers: gen parity needs torch\n" in output
    assert output.endswith(": see gen list parts.\n")
    _, train, *_ = programs_of(output)
    assert train.startswith("python -m mine_cpu.train --checkpoint-dir ../runs/mine --data ../train.jsonl ")
    assert "--tokenizer bytes" in train
    assert "--preset mine --steps" in train
    assert set(json.loads(Path("train.jsonl").read_text().splitlines()[0])) == {"prompt", "completion"}
    before = files(folder)
    assert "the architecture mine fits it as it is" in start("config.json", *QUIET, "--name=mine")
    assert files(folder) == before


def hear() -> None:
    """Lets a child end by Ctrl-C, which what a shell starts in the background ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_nothing_half_done(folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    def stopped(target: str) -> set[str]:
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            assert "stopped" in start("Tiny-1B", *QUIET, "--name=mine", code=130)
        return {path for path in files(folder) if not path.startswith("Tiny-1B")} - {"gen.toml"}

    assert stopped("generator.disk.project.Project.forget_library") == set()
    architecture = "templates/architectures/mine.toml"
    assert stopped("generator.disk.write.os.replace") == {architecture}
    assert not Path("generated/mine_cpu").exists()
    words = [sys.executable, "-m", "generator", "start", "Tiny-1B", *QUIET, "--name=mine"]
    with subprocess.Popen(
        words, env=ENVIRONMENT | {"PYTHONPATH": ROOT}, stderr=subprocess.PIPE, preexec_fn=hear
    ) as child:
        while not Path("runs/mine.half").exists():  # the import has begun to write
            assert child.poll() is None
            time.sleep(0.005)
        child.send_signal(signal.SIGINT)
        assert (child.wait(60), child.stderr.read()) == (130, b"stopped\n")
    assert Path("generated/mine_cpu/gen.lock").is_file() and not Path("runs/mine.half").exists()
    has_ended = Path("runs/mine").exists()  # before the signal arrived
    output = start("Tiny-1B", *QUIET, "--name=mine")
    assert ("runs/mine: is there already" if has_ended else "runs/mine: the weights of ../Tiny-1B as step 0") in output


SLOW = """
import time, pathlib
half = pathlib.Path("half")
half.mkdir()
try:
    time.sleep(60)
except KeyboardInterrupt:
    half.rmdir()
    raise SystemExit(130)
"""


def test_ctrl_c_ends_a_program_after_its_cleaning_up(tmp_path):
    code = (
        f"from generator.running.program import run_program as r; from pathlib import Path; r(['-c', {SLOW!r}], Path())"
    )
    environment = os.environ | {"PYTHONPATH": ROOT}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, preexec_fn=hear
    ) as child:
        while not (tmp_path / "half").exists():
            time.sleep(0.005)
        child.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in child.stderr.read() and child.wait(60) == -signal.SIGINT
    assert not (tmp_path / "half").exists()


def test_what_cannot_be_read_is_an_error_that_helps(folder):
    path = Path("Tiny-1B/config.json")
    settings = json.loads(path.read_text())
    assert "hf download meta/llama --local-dir llama\n" in start("meta/llama", code=2)
    path.write_text(json.dumps(settings | {"model_type": "unheard_of"}))
    assert "no architecture has the model_type 'unheard_of'" in start("Tiny-1B", code=2)
    path.write_text(json.dumps(settings | {"mlp_bias": True}))
    assert "mlp_bias is true, and llama2 is woven for false" in start("Tiny-1B", code=2)
    path.write_text("{")
    assert "Tiny-1B/config.json: cannot be read" in start("Tiny-1B", code=2)
    path.unlink()
    assert "Tiny-1B/config.json: does not exist" in start("Tiny-1B", code=2)
    assert not Path("templates").exists() and not Path("generated").exists()
