"""Checkpoints: damaged ones, half ones, which of them are kept, and on another mesh."""

import dataclasses
import gc
import shutil
import sys
from pathlib import Path

import grain
import jax
import numpy as np
import pytest

from generator.roles import (
    PACKAGE,
    SMALL,
    Checkpoints,
    InputError,
    TrainState,
    abstract,
    create_state,
    load_checkpoint,
    make_mesh,
    new_state,
    run_python,
)

# Orbax drops coroutines when a read fails; Python tells of them whenever it collects them, in any test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def hook(monkeypatch):
    """Where a checkpoint is damaged, a hook for what Orbax drops takes the place of Python's: here for one test."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    gc.collect()


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
        with pytest.raises(InputError, match="every checkpoint is damaged"):
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
    with pytest.raises(InputError, match="there is no checkpoint"):
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
    checkpoints.manager.wait_until_finished()
    target = abstract(lambda: new_state(SMALL), make_mesh(1, 1, 1))
    step, config, model, training = checkpoints.restore(
        target.model, dataclasses.replace(target, model=None), iterator()
    )
    assert (step, config, training) == (0, SMALL, None) and same(model, state.model)


ON_FOUR_DEVICES = """
import dataclasses, sys, jax, numpy as np
from PACKAGE.checkpoint import Checkpoints
from PACKAGE.parallel import abstract, make_mesh
from PACKAGE.tests.small import SMALL
from PACKAGE.tests.test_checkpoint import iterator, same, save
from PACKAGE.train import create_state, new_state

state = create_state(SMALL, make_mesh(1, 4, 1))
arrays = jax.tree.leaves(state.model)
split = sum(x.size for x in arrays if x.addressable_shards[0].data.size * 4 == x.size)
assert split > 0.9 * sum(x.size for x in arrays)
save(Checkpoints(sys.argv[1], SMALL), 5, state)
target = abstract(lambda: new_state(SMALL), make_mesh(2, 1, 2))
checkpoints = Checkpoints(sys.argv[1], SMALL)
step, _, model, training = checkpoints.restore(target.model, dataclasses.replace(target, model=None), iterator())
assert step == 5 and same(model, state.model) and same(training.opt_state, state.opt_state)
for x, wanted in zip(jax.tree.leaves((model, training.opt_state)), jax.tree.leaves((target.model, target.opt_state))):
    assert x.sharding == wanted.sharding
"""


def test_restores_on_another_mesh(tmp_path):
    process = run_python("-c", ON_FOUR_DEVICES.replace("PACKAGE", PACKAGE.name), str(tmp_path), devices=4)
    assert process.returncode == 0, process.stderr
