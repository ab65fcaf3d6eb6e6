"""Checkpoints on local disks: a killed job goes on from the newest that all processes have, else from the shared one."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

import pytest
from selected import mostly_slow

from distributed import test_kills
from distributed.jobs import finish
from distributed.test_kills import losses, train

data = test_kills.data  # a fixture
SETTINGS = dict(steps=70, checkpoint_every=20, eval_every=100, local_checkpoint_every=6)
SHAPE = 2, 2  # processes, devices of each


def steps(folder: Path, pattern: str) -> set[int]:
    return {int(path.stem) for path in folder.glob(pattern) if path.stem.isdecimal()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache, data) -> list:
    """Losses of a run without any local checkpoint that nothing stops: the last, on held-out data, after all steps."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    finish(train(directory, cache, data, SHAPE, **SETTINGS | {"local_checkpoint_every": 0}))
    found = losses(directory)
    assert (SETTINGS["steps"], "eval/loss") in [entry[:2] for entry in found]
    return found


@pytest.fixture(scope="module")
def killed(tmp_path_factory, cache, data) -> tuple[Path, int]:
    """The folder of a job that was killed while a local checkpoint was the newest, and that one's step."""
    folder = tmp_path_factory.mktemp("killed")
    job = train(folder / "run", cache, data, SHAPE, **SETTINGS, local_checkpoint_dir=folder / "local")
    deadline = time.monotonic() + 600
    while any(not steps(folder, f"local/*/{i}/*.safetensors") & {30, 36} for i in (0, 1)):
        assert time.monotonic() < deadline and all(process.poll() is None for process in job)
        time.sleep(0.001)
    for process in job:
        process.kill()
        process.communicate()
    both = steps(folder, "local/*/0/*.safetensors") & steps(folder, "local/*/1/*.safetensors")
    assert steps(folder, "run/*") == {20} and both
    return folder, max(both)


@pytest.mark.parametrize("lost", mostly_slow(["nothing", "all", "one part", "a byte", "the place"], "a byte"))
def test_a_killed_job_goes_on_as_if_it_had_not_been(tmp_path, cache, data, whole, killed, lost):
    folder, newest = killed
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (local,) = tmp_path.glob("local/*")
    if lost != "the place":  # else it is a copy of a run, which has no part in the other's local checkpoints
        place = hashlib.sha256(str(tmp_path / "run").encode()).hexdigest()[:8]
        local.rename(local.with_name(f"{(tmp_path / 'run/run').read_text()}-{place}"))
    for part in tmp_path.glob("local/*/1"):
        if lost == "a byte":
            for path in part.glob("*.safetensors"):
                content = path.read_bytes()
                path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        elif lost in ("all", "one part"):
            shutil.rmtree(part.parents[1] if lost == "all" else part)
    settings = SETTINGS | {"local_checkpoint_dir": tmp_path / "local"}
    told = "".join(finish(train(tmp_path / "run", cache, data, SHAPE, **settings)))
    assert f"continues after step {newest if lost == 'nothing' else 20} " in told, told
    assert ("is not what was saved" in told) == (lost == "a byte"), told
    assert losses(tmp_path / "run") == whole
    shutil.rmtree(local, ignore_errors=True)  # of the other run
    assert steps(tmp_path, "local/*/*/*.safetensors") <= {54, 66}  # 60 is a shared one


def test_another_model_is_told(tmp_path, cache, data, killed):
    shutil.copytree(killed[0], tmp_path, dirs_exist_ok=True)
    (local,) = tmp_path.glob("local/*")
    place = hashlib.sha256(str(tmp_path / "run").encode()).hexdigest()[:8]
    local.rename(local.with_name(f"{(tmp_path / 'run/run').read_text()}-{place}"))
    settings = SETTINGS | {"local_checkpoint_dir": tmp_path / "local", "layers": 3}
    told = "".join(finish(train(tmp_path / "run", cache, data, SHAPE, **settings), code=2))
    assert "safetensors is of another model: settings there -> here: layers" in told, told


def test_the_last_one_that_fails_is_told(tmp_path, cache, data):
    (tmp_path / "local").write_text("no folder")
    settings = SETTINGS | {"steps": 7, "local_checkpoint_dir": tmp_path / "local"}
    (told,) = finish(train(tmp_path / "run", cache, data, (1, 1), **settings))
    assert "warning: a checkpoint on local disks fails: " in told and "checkpoints and metrics: " in told, told


def test_another_run_in_the_same_directory_begins_anew(tmp_path, cache, data, killed):
    shutil.copytree(killed[0] / "local", tmp_path / "local")
    settings = SETTINGS | {"steps": 7, "local_checkpoint_dir": tmp_path / "local"}
    assert "new run in" in "".join(finish(train(tmp_path / "run", cache, data, SHAPE, **settings)))


def test_one_flag_without_the_other_is_refused(tmp_path, cache, data):
    (told,) = finish(train(tmp_path, cache, data, (1, 1), **SETTINGS), code=2)
    assert "--local-checkpoint-dir and --local-checkpoint-every: give both, or neither" in told
