"""Checkpoints that are damaged, or that storage fails to return."""

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from generator.language import requires
from generator.language.roles import (
    SMALL,
    Checkpoints,
    InputError,
    agree,
    checksums,
    load_checkpoint,
    make_mesh,
    restore_state,
    same,
    save_state,
    save_two,
    state_for,
    with_nan,
)

requires("damage")

# Orbax drops coroutines when a read fails; Python reports them whenever it collects them
dropped = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [dropped, pytest.mark.usefixtures("unraisable_hook")]


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    return save_two(tmp_path_factory.mktemp("two"))


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


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


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
    "a pipe": lambda step: replace_by_pipe(step / "config" / "metadata"),
    "a pipe for arrays": lambda step: replace_by_pipe(largest(step / "model")),
    "data cut": lambda step: cut(step / "data" / "metadata"),
    "config nested too deeply": lambda step: (step / "config" / "metadata").write_text("[" * 100_000),
    "structure nested too deeply": lambda step: (step / "model" / "_METADATA").write_text('{"a":' * 100_000),
    "a number of too many digits": lambda step: (step / "data" / "metadata").write_text("9" * 5000),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(damage, two_checkpoints, tmp_path, capsys):
    state = state_for(SMALL)
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    damage(directory / "7")
    step, restored, following = restore_state(directory)
    assert (step, following) == (3, 3)
    assert same(restored.model, state.model) and int(restored.step) == 3
    assert f"{directory / '7'} is damaged" in capsys.readouterr().err
    checkpoints = Checkpoints(str(directory), SMALL).open()
    save_state(checkpoints, 7, state)  # its step can be saved again
    checkpoints.manager.close()
    assert restore_state(directory)[0] == 7
    assert len(list(directory.glob("damaged-7-*"))) == 1


def test_arrays_that_change_before_they_are_written_are_damaged(two_checkpoints, tmp_path, monkeypatch, capsys):
    """As on a faulty host: what storage checks of its own is sound then."""
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    shutil.rmtree(directory / "7")
    with monkeypatch.context() as faulty:
        module = sys.modules[Checkpoints.__module__]
        faulty.setattr(module, "checksums", lambda arrays: (checksums(arrays)[0] ^ 1, True))
        checkpoints = Checkpoints(str(directory), SMALL).open()
        save_state(checkpoints, 7, state_for(SMALL))
        checkpoints.manager.close()
    assert restore_state(directory)[0] == 3
    assert "is not what was saved, by its checksums" in capsys.readouterr().err


def test_a_folder_whose_number_no_run_reaches_is_put_aside(two_checkpoints, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    for number in f"{2**31}", "12345678901234567890":
        shutil.copytree(directory / "7", directory / number)
    assert load_checkpoint(str(directory), make_mesh(1, 1, 1))[0] == SMALL  # which changes nothing
    assert restore_state(directory)[0] == 7
    assert capsys.readouterr().err.count(f"{directory / '12345678901234567890'}: no run has as many steps") == 2
    assert len(list(directory.glob("damaged-*"))) == 2
    checkpoints = Checkpoints(str(directory), SMALL).open()
    save_state(checkpoints, 9, state_for(SMALL))
    checkpoints.close()
    assert restore_state(directory)[0] == 9


def test_when_all_are_damaged_nothing_begins_anew(two_checkpoints, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(two_checkpoints, directory)
    for step in "3", "7":
        cut(largest(directory / step / "model"))
    for _ in range(2):  # a second try fails too
        with pytest.raises(InputError, match="every checkpoint is damaged"):
            restore_state(directory)


def test_a_run_goes_on_from_the_checkpoint_before_one_that_is_not_finite(tmp_path, monkeypatch, capsys):
    state = state_for(SMALL)
    module = sys.modules[Checkpoints.__module__]
    checkpoints = Checkpoints(str(tmp_path), SMALL).open()
    sums = module.checksums
    save_state(checkpoints, 3, state)
    monkeypatch.setattr(module, "checksums", lambda arrays: (sums(arrays)[0], True))
    save_state(checkpoints, 7, with_nan(state))
    checkpoints.close()
    monkeypatch.setattr(module, "checksums", sums)
    assert restore_state(tmp_path)[0] == 3
    assert f"{tmp_path / '7'} is damaged: model is not finite" in capsys.readouterr().err
    assert len(list(tmp_path.glob("damaged-7-*"))) == 1


FAILURES = {
    "storage is away": lambda: ValueError("UNAVAILABLE: Error reading in OCDBT database: try again"),
    "a disk fails": lambda: OSError(5, "Input/output error"),
    "a file cannot be read": lambda: ValueError("UNKNOWN: Error reading file: no [os_error_code='5']"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("times", [2, 99])
def test_a_checkpoint_that_storage_fails_to_give_is_not_damaged(failure, times, two_checkpoints, monkeypatch):
    read = Checkpoints.read
    calls, pauses = [], []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) <= times:
            raise Exception("in an array") from failure()
        return read(*arguments)

    monkeypatch.setattr(Checkpoints, "read", fails)
    # of this module alone: other threads, such as those of a pool, go on sleeping
    monkeypatch.setattr(sys.modules[agree.__module__], "time", SimpleNamespace(sleep=pauses.append))
    before = sorted(two_checkpoints.rglob("*"))
    if times == 2:
        assert restore_state(two_checkpoints)[0] == 7 and pauses == [1, 2]
    else:
        with pytest.raises(OSError):
            restore_state(two_checkpoints)
        assert pauses == [1, 2, 4, 8]
    assert sorted(two_checkpoints.rglob("*")) == before
