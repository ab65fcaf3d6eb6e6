"""Directories that import and export write, on disk or on an object store: complete or not there."""

import pytest
from etils import epath

from generator.language import requires, splice
from generator.language.roles import PACKAGE, InputError, atomic_directory, run_python

requires("checkpoint/convert")


def test_a_folder_is_whole_or_not_there(tmp_path):
    for _ in range(2):  # a second try is not refused
        with pytest.raises(OSError, match="full"), atomic_directory(str(tmp_path / "new" / "run")) as half:
            half.mkdir(parents=True)
            (half / "begun").write_text("")
            raise OSError("full")
        assert not list((tmp_path / "new").iterdir())
    with atomic_directory(str(tmp_path / "new" / "run")) as half:
        half.mkdir(parents=True)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["run"]
    with pytest.raises(InputError, match="already exists"), atomic_directory(str(tmp_path / "new" / "run")):
        pass


def test_a_store_that_cannot_be_reached_is_named_and_no_folder_is_made(tmp_path):
    program = f"import os, runpy, sys; sys.path.insert(0, os.getcwd()); os.chdir({str(tmp_path)!r}); "
    program += "sys.modules['gcsfs'] = None; sys.argv[1:] = ['export', 'gs://bucket/run', 'hf']; "
    program += f"runpy.run_module('{PACKAGE.name}.checkpoint', run_name='__main__')"
    process = run_python("-c", program)
    assert process.returncode == 2 and "Traceback" not in process.stderr, process.stderr
    assert "gcs" in process.stderr or "is on no disk" in process.stderr
    assert not list(tmp_path.iterdir())


@splice("test_storage.bucket", optional=True)
def _():
    with atomic_directory("gs://bucket/hf") as half:
        (half / "config.json").write_text("{}")
    assert (epath.Path("gs://bucket/hf") / "config.json").exists()
