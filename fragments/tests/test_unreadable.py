"""Checkpoints that cannot be read: each is named, with what to do, and none is skipped."""

import os
import shutil

import pytest

from generator.language import excludes
from generator.language.roles import (
    SMALL,
    Checkpoints,
    InputError,
    create_state,
    make_mesh,
    raising,
    restore_state,
    save_state,
)

excludes("damage")

# Orbax drops coroutines when a read fails; Python reports them whenever it collects them
dropped = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [dropped, pytest.mark.usefixtures("unraisable_hook")]


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    checkpoints = Checkpoints(str(tmp_path), SMALL).open()
    for step in 3, 7:
        save_state(checkpoints, step, create_state(SMALL, make_mesh(1, 1, 1)))
    checkpoints.close()
    array = max((tmp_path / "7/model").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    content = bytearray(array.read_bytes())
    content[len(content) // 2] ^= 1
    for damage in lambda: array.write_bytes(content), array.unlink, lambda: shutil.rmtree(tmp_path / "7/config"):
        damage()
        with pytest.raises(InputError, match=f"{tmp_path}/7 is damaged: .*: mend it, or move it away"):
            restore_state(tmp_path)
    os.mkfifo(tmp_path / "7/config")
    with pytest.raises(InputError, match=f"{tmp_path}/7 is damaged: {tmp_path}/7/config is not a file: mend it"):
        restore_state(tmp_path)
    shutil.rmtree(tmp_path / "7")
    for failure in OSError(5, "Input/output error"), ValueError("UNKNOWN: Error reading file [os_error_code='5']"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match=f"{tmp_path}/3 cannot be read: ") as raised:
            patch.setattr(Checkpoints, "read", raising(failure))
            restore_state(tmp_path)
        assert "damaged" not in str(raised.value) and (tmp_path / "3").exists()
    assert restore_state(tmp_path)[0] == 3
    (tmp_path / "12345678901234567890").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}/12345678901234567890 is damaged: .*: mend it"):
        restore_state(tmp_path)
