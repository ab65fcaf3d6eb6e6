"""Checkpoints: damaged ones, half ones, which of them are kept, on another mesh, on storage that fails."""

import dataclasses
import gc
import json
import math
import shutil
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import point
from generator.language.roles import (
    SMALL,
    Checkpoints,
    InputError,
    Numbers,
    TrainState,
    abstract,
    create_state,
    load_checkpoint,
    make_mesh,
    named_arrays,
    new_state,
    restore_state,
    run_python,
    save_state,
)

# Orbax drops coroutines when a read fails; Python reports them whenever it collects them, in any test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def hook(monkeypatch):
    """Checkpoints put a hook for what Orbax drops in the place of Python's: here for one test."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    gc.collect()


def same(a, b) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


@pytest.fixture(scope="module")
def state():
    return create_state(SMALL, make_mesh(1, 1, 1))


@pytest.fixture(scope="module")
def two_checkpoints(state, tmp_path_factory):
    directory = tmp_path_factory.mktemp("two")
    checkpoints = Checkpoints(str(directory), SMALL)
    save_state(checkpoints, 3, state)
    save_state(checkpoints, 7, state)
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


def change_config(step: Path, old: str, new: str) -> None:
    path = step / "config" / "metadata"
    text = path.read_text().replace(" ", "")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


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
    "a name in the config changed": lambda step: change_config(step, '"heads":', '"headz":'),
    "a value in the config changed": lambda step: change_config(step, '"seed":0,', '"seed":1,'),
    "structure cut": lambda step: cut(step / "training" / "_METADATA"),
    "data cut": lambda step: cut(next((step / "data").glob("rows-*"))),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(damage, two_checkpoints, state, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    damage(directory / "7")
    step, restored, following = restore_state(directory)
    assert (step, following) == (3, 3)
    assert same(restored.model, state.model) and int(restored.step) == 3
    assert f"{directory / '7'} is damaged" in capsys.readouterr().err
    checkpoints = Checkpoints(str(directory), SMALL)
    save_state(checkpoints, 7, state)  # its step can be saved again
    checkpoints.manager.close()
    assert restore_state(directory)[0] == 7
    assert len(list(directory.glob("damaged-7-*"))) == 1


def test_arrays_of_another_dtype_are_no_damage(state, tmp_path):
    """As of --moments-dtype, given anew: Orbax would convert them, and their checksums would not be those saved."""
    checkpoints = Checkpoints(str(tmp_path), SMALL)
    halves = jax.tree.map(lambda x: x.astype("bfloat16") if x.dtype == "float32" else x, state.opt_state)
    save_state(checkpoints, 3, dataclasses.replace(state, opt_state=halves))
    checkpoints.manager.close()
    with pytest.raises(InputError, match=r"is bfloat16 \[.*\] there, float32 \[.*\] here; settings there -> here"):
        restore_state(tmp_path)


def test_when_all_are_damaged_nothing_begins_anew(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    for step in "3", "7":
        cut(largest(directory / step / "model"))
    for _ in range(2):  # nor at a second try
        with pytest.raises(InputError, match="every checkpoint is damaged"):
            restore_state(directory)


def test_half_a_checkpoint_is_no_checkpoint(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    half = directory / "9.orbax-checkpoint-tmp"
    shutil.copytree(directory / "7", half)
    shutil.rmtree(half / "training")
    assert restore_state(directory)[0] == 7
    assert not half.exists()


def test_an_empty_directory_holds_none(tmp_path):
    assert restore_state(tmp_path) is None
    with pytest.raises(InputError, match="there is no checkpoint"):
        load_checkpoint(str(tmp_path), make_mesh(1, 1, 1))


def test_of_the_checkpoints_the_last_and_some_are_kept(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), dataclasses.replace(SMALL, keep_last=2, keep_every=4))
    for step in range(1, 8):
        save_state(checkpoints, step, state)
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
        target.model, dataclasses.replace(target, model=None), Numbers()
    )
    found, expected = named_arrays(model), named_arrays(state.model)
    point("test_checkpoint.imported", found, expected)
    assert (step, config, training) == (0, SMALL, None) and same(found, expected)


def check_four_devices(directory: str) -> None:
    """Saved over fsdp, restored over data and, where there are key and value heads to split, tensor."""
    state = create_state(SMALL, make_mesh(1, 4, 1))
    arrays = named_arrays(state.model)
    point("test_checkpoint.split", arrays)
    split = sum(x.size for x in arrays.values() if x.addressable_shards[0].data.size * 4 == x.size)
    assert split > 0.9 * sum(x.size for x in arrays.values())
    save_state(Checkpoints(directory, SMALL), 5, state)
    tensor = math.gcd(2, getattr(SMALL, "kv_heads", SMALL.heads))
    target = abstract(lambda: new_state(SMALL), make_mesh(4 // tensor, 1, tensor))
    checkpoints = Checkpoints(directory, SMALL)
    step, _, model, training = checkpoints.restore(target.model, dataclasses.replace(target, model=None), Numbers())
    assert step == 5 and same(model, state.model) and same(training.opt_state, state.opt_state)
    places = jax.tree.leaves((target.model, target.opt_state))
    for x, wanted in zip(jax.tree.leaves((model, training.opt_state)), places):
        assert x.sharding == wanted.sharding


def test_restores_on_another_mesh(tmp_path):
    program = f"from {__name__} import check_four_devices; check_four_devices({str(tmp_path)!r})"
    process = run_python("-c", program, devices=4)
    assert process.returncode == 0, process.stderr


def with_nan(state: TrainState) -> TrainState:
    return dataclasses.replace(state, model=jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(jnp.nan), state.model))


def test_what_is_not_finite_is_not_saved(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), SMALL)
    with pytest.raises(InputError, match="step 3 is not saved: its model is not finite"):
        save_state(checkpoints, 3, with_nan(state))
    checkpoints.close()
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_from_the_checkpoint_before_one_that_is_not_finite(state, tmp_path, monkeypatch, capsys):
    module = sys.modules[Checkpoints.__module__]
    checkpoints, sums = Checkpoints(str(tmp_path), SMALL), module.checksums
    save_state(checkpoints, 3, state)
    monkeypatch.setattr(module, "checksums", lambda arrays: (sums(arrays)[0], True))
    save_state(checkpoints, 7, with_nan(state))
    checkpoints.close()
    monkeypatch.setattr(module, "checksums", sums)
    assert restore_state(tmp_path)[0] == 3
    assert f"{tmp_path / '7'} is not finite" in capsys.readouterr().err
    assert len(list(tmp_path.glob("damaged-7-*"))) == 1


FAILURES = {
    "storage is away": lambda: ValueError("UNAVAILABLE: Error reading in OCDBT database: try again"),
    "a disk fails": lambda: OSError(5, "Input/output error"),
    "a file cannot be read": lambda: ValueError("UNKNOWN: Error reading file: no [os_error_code='5']"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("times", [2, 99])
def test_a_checkpoint_that_storage_fails_to_give_is_not_damaged(failure, times, two_checkpoints, monkeypatch):
    read, calls, pauses = Checkpoints.read, [], []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) <= times:
            raise Exception("in an array") from failure()
        return read(*arguments)

    monkeypatch.setattr(Checkpoints, "read", fails)
    monkeypatch.setattr(time, "sleep", pauses.append)
    before = sorted(two_checkpoints.rglob("*"))
    if times == 2:
        assert restore_state(two_checkpoints)[0] == 7 and pauses == [1, 2]
    else:
        with pytest.raises(OSError):
            restore_state(two_checkpoints)
        assert pauses == [1, 2, 4, 8]
    assert sorted(two_checkpoints.rglob("*")) == before


def test_a_checkpoint_of_another_architecture_is_told_apart(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    path = directory / "7" / "config" / "metadata"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    for changed, message in {
        "architecture": "of another architecture: mamba there",
        "state_size": "settings of only one: .'state_size'",
    }.items():
        path.write_text(json.dumps(fields | {changed: "mamba"}))
        with pytest.raises(InputError, match=message):
            restore_state(directory)
    del fields["width"]
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"settings of only one: .'width'"):
        restore_state(directory)
    assert {"3", "7"} <= {p.name for p in directory.iterdir()}


def test_a_checkpoint_from_before_a_setting_was_added_has_its_default(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    path = directory / "7" / "config" / "metadata"
    fields = json.loads(path.read_text())
    del fields["seed"], fields["architecture"], fields["checksum"]
    path.write_text(json.dumps(fields))
    assert restore_state(directory)[0] == 7
    assert load_checkpoint(str(directory), make_mesh(1, 1, 1))[0] == SMALL
