"""A run's directory: one run at a time, full disks, object stores, and no incomplete folders."""

import json
import os
import sys
import time

import orbax.checkpoint as ocp
import pytest
from etils import epath

from generator.language import point, requires
from generator.language.roles import (
    PACKAGE,
    SMALL,
    Checkpoints,
    DirectoryLock,
    InputError,
    Monitor,
    Numbers,
    check_lock,
    copy_tokenizer,
    create_state,
    keep_tokenizer,
    kept_tokenizer,
    make_mesh,
    restore_state,
    run_python,
    save_state,
)

requires("cluster/lock")


def test_a_directory_is_of_one_run_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[DirectoryLock.__module__], "RENEWAL", 0.2)
    directory = epath.Path(tmp_path)
    lock = tmp_path / "lock"
    with DirectoryLock(directory):
        with pytest.raises(InputError, match=f"in use by process {os.getpid()} on "), DirectoryLock(directory):
            pass
        check_lock()
        lock.write_text("process 5 on another since now")
        with pytest.raises(InputError, match="in use by process 5 on another") as ended:
            check_lock()
        assert ended.value.code == 74  # another try is worth it
    assert "another" in lock.read_text()  # which has it now
    monkeypatch.setattr(sys.modules[DirectoryLock.__module__], "LEASE", 0.5)
    with DirectoryLock(directory):  # it renewed nothing
        check_lock()
    assert not lock.exists()


def test_a_slow_write_takes_the_lock_from_nobody(tmp_path, monkeypatch):
    """Neither a starting run nor a renewal takes a lock that another run took during the write."""
    directory = epath.Path(tmp_path)
    lock = tmp_path / "lock"
    other = "process 5 on another since now"
    write = type(directory).write_text

    def write_slowly(self, text):
        write(self, text)
        lock.write_text(other)

    monkeypatch.setattr(type(directory), "write_text", write_slowly)
    with pytest.raises(InputError, match=other), DirectoryLock(directory):
        pass
    assert lock.read_text() == other
    lock.unlink()
    monkeypatch.setattr(type(directory), "write_text", write)
    monkeypatch.setattr(sys.modules[DirectoryLock.__module__], "RENEWAL", 0.1)
    with DirectoryLock(directory) as held:
        monitor = Monitor(directory, SMALL, 0)
        monitor.log_metrics(1, {"train/loss": 1.0})
        monkeypatch.setattr(type(directory), "write_text", write_slowly)
        end = time.monotonic() + 20
        while held.renewed > 0 and time.monotonic() < end:  # until a renewal, late on a busy machine, finds the other
            time.sleep(0.1)
        with pytest.raises(InputError, match=other):
            monitor.log_metrics(2, {"train/loss": 1.0})
        monitor.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1 and not (tmp_path / "loss.png").exists()
    assert lock.read_text() == other and not list(tmp_path.glob("lock.*"))


def test_a_checkpoint_of_a_run_that_lost_its_directory_gets_no_name(tmp_path, monkeypatch):
    """It is lost while arrays are written, after the check at the start of saving."""
    state = create_state(SMALL, make_mesh(1, 1, 1))
    with DirectoryLock(epath.Path(tmp_path)):
        checkpoints = Checkpoints(str(tmp_path), SMALL).open()
        save_state(checkpoints, 1, state)

        async def write_slowly(self, *arguments, **options):
            (tmp_path / "lock").write_text("process 5 on another since now")
            return []

        monkeypatch.setattr(ocp.JsonCheckpointHandler, "async_save", write_slowly)
        with pytest.raises(InputError, match="in use by process 5 on another") as ended:
            checkpoints.save(2, {"model": state.model}, Numbers())
            checkpoints.close()
        assert ended.value.code == 74
    assert (tmp_path / "1").is_dir() and not (tmp_path / "2").exists()


def test_a_lock_that_is_none_is_named_or_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[DirectoryLock.__module__], "LEASE", 0.3)
    (tmp_path / "lock").write_bytes(b"\xff\0")
    with DirectoryLock(epath.Path(tmp_path)):
        pass
    (tmp_path / "file").touch()
    for directory in tmp_path / "file/run", "/proc", "/proc/run":
        with pytest.raises(InputError, match=f"{directory}: cannot be written: .*: give another path"):
            DirectoryLock(epath.Path(directory)).__enter__()
    (tmp_path / "lock").mkdir()
    with pytest.raises(InputError, match=r"lock: a directory where .*: remove it"), DirectoryLock(epath.Path(tmp_path)):
        pass


def test_the_lock_of_a_process_that_is_gone_holds_nobody(tmp_path):
    program = f"import os; from etils import epath; from {PACKAGE.name}.cluster import DirectoryLock\n"
    program += "with DirectoryLock(epath.Path(os.sys.argv[1])): os._exit(9)"
    assert run_python("-c", program, str(tmp_path)).returncode == 9
    assert (tmp_path / "lock").exists()
    start = time.monotonic()
    with DirectoryLock(epath.Path(tmp_path)):
        assert time.monotonic() - start < 5


FULL = """
import resource, signal, sys
from PACKAGE.checkpoints import Checkpoints
from PACKAGE.errors import ending_with_messages
from PACKAGE.parallel import make_mesh
from PACKAGE.tests.small import SMALL
from PACKAGE.tests.saved import save_state
from PACKAGE.trainer import create_state

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too large is an error, as on a full disk
checkpoints = Checkpoints(sys.argv[1], SMALL).open()
state = create_state(SMALL, make_mesh(1, 1, 1))
with ending_with_messages():
    save_state(checkpoints, 3, state)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    checkpoints.save(7, {"model": state.model})
    checkpoints.close()
"""


def test_a_full_disk_ends_with_one_message_and_leaves_what_is_whole(tmp_path):
    process = run_python("-c", FULL.replace("PACKAGE", PACKAGE.name), str(tmp_path / "run"))
    assert process.returncode == 74, process.stderr
    assert "error: " in process.stderr and "File too large" in process.stderr
    assert "Traceback" not in process.stderr
    assert restore_state(tmp_path / "run")[0] == 3


def test_an_object_store_is_no_local_folder(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    class Store(fsspec.get_filesystem_class("memory")):
        store, pseudo_dirs, protocol = {}, [""], ("gs", "gcs")

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.replace("gs://", "memory://"))

    backend = type(epath.backend.fsspec_backend)  # of etils, which keeps the file systems that it has made
    made = backend._get_filesystem
    store = Store()
    monkeypatch.setattr(backend, "_get_filesystem", lambda self, name: store if name == "gcs" else made(self, name))
    monkeypatch.chdir(tmp_path)
    directory = epath.Path("gs://bucket/run")
    for step in 0, 2:  # a second run resumes
        with DirectoryLock(directory):
            monitor = Monitor(directory, SMALL, step)
            check_lock()
            for i in 1, 2, 3:
                monitor.log_metrics(step + i, {"train/loss": 1.0})
            point("test_storage.recorded", monitor, step)
            monitor.restart_clock()
            monitor.close()
    records = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5]
    names = {p.name for p in directory.iterdir()}
    point("test_storage.files", directory, names)
    assert names == {"metrics.jsonl", "loss.png", "report.html", "tensorboard"}
    (tmp_path / "tokenizer.json").write_text("a tokenizer")
    for _ in range(2):  # the second time it exists
        keep_tokenizer(str(tmp_path / "tokenizer.json"), directory)
    (tmp_path / "tokenizer.json").unlink()
    copy_tokenizer(kept_tokenizer(directory), epath.Path("gs://bucket/copied"))
    assert epath.Path("gs://bucket/copied/tokenizer.json").read_text() == "a tokenizer"
    point("test_storage.bucket")
    assert {"run", "copied"} <= {p.name for p in epath.Path("gs://bucket").iterdir()} <= {"run", "copied", "hf"}
    assert not list(tmp_path.iterdir())
