"""Checkpoints: incomplete ones, which are kept, on another mesh, of another model."""

import dataclasses
import json
import math
import shutil

import jax
import pytest

from generator.language import point
from generator.language.roles import (
    SMALL,
    Checkpoints,
    InputError,
    Numbers,
    abstract,
    checkpoint_items,
    create_state,
    load_checkpoint,
    make_mesh,
    named_arrays,
    new_state,
    raising,
    restore_state,
    run_python,
    same,
    save_state,
    save_two,
    state_for,
    with_nan,
)

# Orbax drops coroutines when a read fails; Python reports them whenever it collects them
dropped = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [dropped, pytest.mark.usefixtures("unraisable_hook")]


@pytest.fixture(scope="module")
def state():
    return state_for(SMALL)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    return save_two(tmp_path_factory.mktemp("two"))


def test_arrays_of_another_dtype_are_no_damage(state, tmp_path):
    """Such as after a new --moments-dtype: Orbax would convert them, and their checksums would differ."""
    checkpoints = Checkpoints(str(tmp_path), SMALL).open()
    halves = jax.tree.map(lambda x: x.astype("bfloat16") if x.dtype == "float32" else x, state.opt_state)
    save_state(checkpoints, 3, dataclasses.replace(state, opt_state=halves))
    checkpoints.manager.close()
    with pytest.raises(InputError, match=r"is bfloat16 \[.*\] there, float32 \[.*\] here; settings there -> here"):
        restore_state(tmp_path)


@pytest.mark.parametrize("error", [MemoryError, jax.errors.JaxRuntimeError])
def test_lack_of_memory_is_no_damage(error, two_checkpoints, monkeypatch):
    before = sorted(two_checkpoints.rglob("*"))
    monkeypatch.setattr(Checkpoints, "read", raising(error("RESOURCE_EXHAUSTED: 3 GiB")))
    with pytest.raises(InputError, match="7 cannot be loaded: RESOURCE_EXHAUSTED: 3 GiB: free memory, or use more dev"):
        restore_state(two_checkpoints)
    assert sorted(two_checkpoints.rglob("*")) == before


def test_a_step_that_orbax_does_not_save_is_not_told_as_saved(state, two_checkpoints, tmp_path):
    directory = shutil.copytree(two_checkpoints, tmp_path / "run")
    checkpoints = Checkpoints(str(directory), SMALL).open()
    with pytest.raises(InputError, match=r"step 5 is not saved: .* has newer ones: give each run its own"):
        save_state(checkpoints, 5, state)
    checkpoints.close()


def test_half_a_checkpoint_is_no_checkpoint(state, two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    half = directory / "9.orbax-checkpoint-tmp"
    shutil.copytree(directory / "7", half)
    shutil.rmtree(half / "training")
    assert restore_state(directory)[0] == 7
    save_state(Checkpoints(str(directory), SMALL).open(), 9, state)
    assert not half.exists() and (directory / "9").exists()


def test_an_empty_directory_holds_none(tmp_path):
    assert restore_state(tmp_path) is None
    with pytest.raises(InputError, match="there is no checkpoint"):
        load_checkpoint(str(tmp_path), make_mesh(1, 1, 1))


def test_of_the_checkpoints_the_last_and_some_are_kept(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), dataclasses.replace(SMALL, keep_last=2, keep_every=4)).open()
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
    checkpoints = Checkpoints(str(tmp_path), SMALL).open()
    checkpoints.save(0, {"model": state.model})
    checkpoints.manager.wait_until_finished()
    target = checkpoint_items(abstract(lambda: new_state(SMALL), make_mesh(1, 1, 1)))
    step, config, items = checkpoints.restore(lambda _: target, Numbers())
    found, expected = named_arrays(items["model"]), named_arrays(state.model)
    point("test_checkpoint.imported", found, expected)
    assert (step, config, [*items]) == (0, SMALL, ["model"]) and same(found, expected)


def check_four_devices(directory: str) -> None:
    """Saves over fsdp, restores over data and, if key and value heads can be split, tensor."""
    state = create_state(SMALL, make_mesh(1, 4, 1))
    arrays = named_arrays(state.model)
    point("test_checkpoint.split", arrays)
    split = sum(x.size for x in arrays.values() if x.addressable_shards[0].data.size * 4 == x.size)
    assert split > 0.9 * sum(x.size for x in arrays.values())
    save_state(Checkpoints(directory, SMALL).open(), 5, state)
    tensor = math.gcd(2, getattr(SMALL, "kv_heads", getattr(SMALL, "heads", 2)))
    target = abstract(lambda: new_state(SMALL), make_mesh(4 // tensor, 1, tensor))
    checkpoints = Checkpoints(directory, SMALL)
    step, _, items = checkpoints.restore(lambda _: checkpoint_items(target), Numbers())
    model, training = items["model"], items["training"]
    assert step == 5 and same(model, state.model) and same(training.opt_state, state.opt_state)
    places = jax.tree.leaves((target.model, target.opt_state))
    for x, wanted in zip(jax.tree.leaves((model, training.opt_state)), places):
        assert x.sharding == wanted.sharding


def test_restores_on_another_mesh(tmp_path):
    program = f"from {__name__} import check_four_devices; check_four_devices({str(tmp_path)!r})"
    process = run_python("-c", program, devices=4)
    assert process.returncode == 0, process.stderr


def test_what_is_not_finite_is_not_saved(state, tmp_path):
    checkpoints = Checkpoints(str(tmp_path), SMALL).open()
    with pytest.raises(InputError, match="step 3 is not saved: its model is not finite"):
        save_state(checkpoints, 3, with_nan(state))
    checkpoints.close()
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_architecture_is_told_apart(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    path = directory / "7" / "config" / "metadata"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    for changed, message in {
        "architecture": "or other parts: mamba there.*: use its own package",
        "stripes": "settings of only one: .'stripes'",
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
