"""Runs that are stopped, killed, moved to another mesh or find damaged checkpoints, against one that never was."""

import dataclasses
import email
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import grain
import jax
import numpy as np
import pytest

from generator.roles import (
    PRESETS,
    Checkpoints,
    TrainState,
    abstract,
    create_state,
    load_checkpoint,
    make_mesh,
    new_state,
)

# Orbax drops coroutines when a read fails; Python tells of them whenever it collects them, in any test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


PACKAGE = __package__.rpartition(".")[0]


SIZES = dict(
    dtype="float32",
    width=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=8,
    mlp_width=64,
    sequence_length=32,
    batch_size=4,
)


SMALL = dataclasses.replace(PRESETS["tiny"], **SIZES)


TEXT = Path(email.__file__).parent / "*.py"


SETTINGS = SIZES | dict(steps=300, checkpoint_every=60, eval_every=90, eval_batches=2, data=TEXT)


@pytest.fixture(autouse=True)
def hook(monkeypatch):
    """Where a checkpoint is damaged, a hook for what Orbax drops takes the place of Python's: here for one test."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for compiled programs, so that not every process compiles the step again."""
    return str(tmp_path_factory.mktemp("cache"))


def start(directory: Path, cache: str, **settings) -> subprocess.Popen:
    flags = [x for k, v in (SETTINGS | settings).items() for x in (f"--{k.replace('_', '-')}", str(v))]
    return subprocess.Popen(
        [sys.executable, "-m", f"{PACKAGE}.train", "--checkpoint-dir", str(directory), *flags],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen, code: int = 0) -> str:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == code, out + errors
    assert "Traceback" not in errors
    return out + errors


def wait_for(process: subprocess.Popen, happened) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def metrics(directory: Path) -> list[dict]:
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def losses(directory: Path) -> list[tuple]:
    return [(r["step"], name, r[name]) for r in metrics(directory) for name in ("train/loss", "eval/loss") if name in r]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole")
    directory.joinpath("output.txt").write_text(finish(start(directory, cache)))
    return directory


def test_a_whole_run_leaves_what_is_promised(whole):
    assert [r["step"] for r in metrics(whole) if "train/loss" in r] == list(range(1, 301))
    assert [r["step"] for r in metrics(whole) if "eval/loss" in r] == [90, 180, 270, 300]
    names = {name for r in metrics(whole) for name in r} - {"step"}
    assert {"train/learning_rate", "train/gradient_norm", "train/tokens_per_second"} < names
    assert (whole / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(int(p.name) for p in whole.iterdir() if p.name.isdigit()) == [180, 240, 300]
    output = (whole / "output.txt").read_text()
    for text in ("step 300/300", "tokens/s", "% full", "% causal", "ETA"):
        assert text in output


def test_tensorboard_reads_the_events(whole):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(whole / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert set(events.Tags()["scalars"]) == {name for r in metrics(whole) for name in r} - {"step"}
    assert [e.step for e in events.Scalars("train/loss")] == list(range(1, 301))


def test_a_stopped_and_a_killed_run_go_on_to_the_bit(whole, tmp_path, cache):
    def reaches(step):
        return lambda: any(r["step"] >= step for r in metrics(tmp_path)[-1:])

    process = start(tmp_path, cache, checkpoint_every=10_000)
    wait_for(process, reaches(20))
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    stopped = metrics(tmp_path)[-1]["step"]
    assert f"stopped by SIGTERM after step {stopped}, which is saved" in output
    assert stopped < 300 and (tmp_path / str(stopped)).is_dir()

    process = start(tmp_path, cache)  # killed some steps after a checkpoint
    wait_for(process, reaches(stopped + 70))
    process.kill()
    finish(process, -signal.SIGKILL)
    killed = metrics(tmp_path)[-1]["step"]
    assert killed < 300

    process = start(tmp_path, cache)  # killed while it saves
    wait_for(process, lambda: any("tmp" in p.name for p in tmp_path.iterdir() if p.name[0].isdigit()))
    process.kill()
    finish(process, -signal.SIGKILL)

    output = finish(start(tmp_path, cache))
    assert "continues after step" in output
    assert not [p for p in tmp_path.iterdir() if "orbax-checkpoint-tmp" in p.name]
    assert losses(tmp_path) == losses(whole)

    output = finish(start(tmp_path, cache))
    assert "all 300 steps are done" in output
    output = finish(start(tmp_path, cache, width=64), code=1)
    assert "is of another model" in output and "width 32 -> 64" in output


def iterator() -> grain.DatasetIterator:
    return iter(grain.MapDataset.range(1000).to_iter_dataset())


def save(checkpoints: Checkpoints, step: int, state: TrainState) -> None:
    data = iterator()
    for _ in range(step):
        next(data)
    state = dataclasses.replace(state, step=state.step + step)
    checkpoints.save(step, state.model, dataclasses.replace(state, model=None), data)
    checkpoints.manager.wait_until_finished()


def restore(directory: Path, config=SMALL):
    """Step, state and the next of the data; None where there is no checkpoint."""
    data = iterator()
    target = abstract(lambda: new_state(config), make_mesh(1, 1, 1))
    checkpoints = Checkpoints(str(directory), config)
    found = checkpoints.restore(target.model, dataclasses.replace(target, model=None), data)
    checkpoints.manager.close()
    return found and (found[0], dataclasses.replace(found[3], model=found[2]), next(data))


def same(a, b) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


@pytest.fixture(scope="module")
def state():
    return create_state(SMALL, make_mesh(1, 1, 1))


@pytest.fixture(scope="module")
def two_checkpoints(state, tmp_path_factory):
    directory = tmp_path_factory.mktemp("two")
    checkpoints = Checkpoints(str(directory), SMALL)
    save(checkpoints, 3, state)
    save(checkpoints, 7, state)
    checkpoints.manager.close()
    return directory


def largest(folder: Path) -> Path:
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "emptied": empty,
    "no model": lambda step: shutil.rmtree(step / "model"),
    "no training": lambda step: shutil.rmtree(step / "training"),
    "no data": lambda step: shutil.rmtree(step / "data"),
    "no config": lambda step: shutil.rmtree(step / "config"),
    "arrays gone": lambda step: largest(step / "model").unlink(),
    "arrays cut": lambda step: cut(largest(step / "model")),
    "a bit of an array flipped": lambda step: flip(largest(step / "model")),
    "config cut": lambda step: cut(step / "config" / "metadata"),
    "structure cut": lambda step: cut(step / "training" / "_METADATA"),
    "data cut": lambda step: cut(next((step / "data").glob("process_*"))),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(damage, two_checkpoints, state, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    damage(directory / "7")
    step, restored, following = restore(directory)
    assert (step, following) == (3, 3)
    assert same(restored.model, state.model) and int(restored.step) == 3
    assert f"{directory / '7'} is damaged" in capsys.readouterr().err
    checkpoints = Checkpoints(str(directory), SMALL)
    save(checkpoints, 7, state)  # its step can be saved again
    checkpoints.manager.close()
    assert restore(directory)[0] == 7
    assert len(list(directory.glob("damaged-7-*"))) == 1


def test_when_all_are_damaged_nothing_begins_anew(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    for step in "3", "7":
        cut(largest(directory / step / "model"))
    for _ in range(2):  # nor at a second try
        with pytest.raises(SystemExit, match="every checkpoint is damaged"):
            restore(directory)


def test_half_a_checkpoint_is_no_checkpoint(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    half = directory / "9.orbax-checkpoint-tmp"
    shutil.copytree(directory / "7", half)
    shutil.rmtree(half / "training")
    assert restore(directory)[0] == 7
    assert not half.exists()


def test_an_empty_directory_holds_none(tmp_path):
    assert restore(tmp_path) is None
    with pytest.raises(SystemExit, match="there is no checkpoint"):
        load_checkpoint(str(tmp_path), make_mesh(1, 1, 1))


def test_of_the_checkpoints_the_last_and_some_are_kept(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), dataclasses.replace(SMALL, keep_last=2, keep_every=4))
    for step in range(1, 8):
        save(checkpoints, step, state)
    checkpoints.manager.close()
    assert sorted(int(p.name) for p in tmp_path.iterdir()) == [4, 6, 7]


def test_a_model_is_loaded_alone(two_checkpoints, state):
    before = sorted(two_checkpoints.rglob("*"))
    config, model = load_checkpoint(str(two_checkpoints), make_mesh(1, 1, 1))
    assert config == SMALL and same(model, state.model)
    assert sorted(two_checkpoints.rglob("*")) == before


def test_imported_weights_have_no_training_state(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), SMALL)
    checkpoints.save(0, state.model)
    target = abstract(lambda: new_state(SMALL), make_mesh(1, 1, 1))
    step, config, model, training = checkpoints.restore(
        target.model, dataclasses.replace(target, model=None), iterator()
    )
    assert (step, config, training) == (0, SMALL, None) and same(model, state.model)


ON_FOUR_DEVICES = """
import dataclasses, sys, jax, numpy as np
from PACKAGE.checkpoint import Checkpoints
from PACKAGE.parallel import abstract, make_mesh
from PACKAGE.tests.test_resume import SMALL, iterator, same, save
from PACKAGE.train import create_state, new_state

state = create_state(SMALL, make_mesh(1, 4, 1))
head = state.model.embedding.head
assert len(head.sharding.device_set) == 4 and not head.sharding.is_fully_replicated
save(Checkpoints(sys.argv[1], SMALL), 5, state)
target = abstract(lambda: new_state(SMALL), make_mesh(2, 1, 2))
checkpoints = Checkpoints(sys.argv[1], SMALL)
step, _, model, training = checkpoints.restore(target.model, dataclasses.replace(target, model=None), iterator())
assert step == 5 and same(model, state.model) and same(training.opt_state, state.opt_state)
for x, wanted in zip(jax.tree.leaves((model, training.opt_state)), jax.tree.leaves((target.model, target.opt_state))):
    assert x.sharding == wanted.sharding
"""


def test_restores_on_another_mesh(tmp_path):
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=4"
    script = ON_FOUR_DEVICES.replace("PACKAGE", PACKAGE)
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
