"""Tasks of an array that prepare data, against one process that does."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from generator.language import requires
from generator.language.roles import InputError, load_tokenizer, open_tokens, refused_prepare, run_prepare

requires("prepare")


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_tasks_of_an_array_make_what_one_process_makes(tmp_path):
    """Whatever their order, though there are more of them than files; none undoes what another one does."""
    folder, out = tmp_path / "texts", tmp_path / "out"
    folder.mkdir()
    for i in range(2):
        rows = (
            json.dumps({"text": f"{i} {j} " + "word " * 120_000, "body": ""}) for j in range(2)
        )  # 1.2 MB fill a file
        (folder / f"{i}.jsonl").write_text("\n".join(rows))
    settings = folder, out, "--tokenizer=bytes", "--workers=1"
    assert run_prepare(folder, tmp_path / "whole", *settings[2:]).returncode == 0
    wanted = digests(tmp_path / "whole")
    count = len(wanted) - 1
    said = [run_prepare(*settings, f"--shard={i}/{count + 1}").stdout for i in (0, *range(2, count + 1))]
    assert f"task 0 of {count + 1}: 0 files are complete; {out} still lacks files of {count} tasks" in said[0]
    assert f"{out} still lacks files of 1 tasks, such as task 1" in said[-1]
    with pytest.raises(InputError, match="it is not whole: start `data prepare` again"):
        open_tokens(str(out), load_tokenizer("bytes"))
    for wrong in "x", "1", "2/2", "0/0", "-1/2", "1/2/3", "0.5/2":
        assert f"--shard {wrong}: must be I/N, for task I of N" in refused_prepare(*settings, f"--shard={wrong}")
    other = folder, out, "--tokenizer=bytes", "--text-field=body", "--shard=0/3"
    assert "was prepared from other files, or for another tokenizer" in refused_prepare(*other)
    times = os.stat(folder / "1.jsonl").st_atime_ns, os.stat(folder / "1.jsonl").st_mtime_ns
    os.utime(folder / "1.jsonl", ns=(0, 0))
    assert "is of files that have changed since, or that this task sees" in refused_prepare(*settings, "--shard=0/3")
    os.utime(folder / "1.jsonl", ns=times)
    half = out / f"{next(name for name in wanted if name != 'prepared.json')}.half-1"
    half.write_text("of a task that runs now")
    assert "still lacks" in run_prepare(*settings, f"--shard=2/{count + 1}").stdout and half.exists()
    for _ in range(2):  # the second time it changes nothing
        ended = run_prepare(*settings, f"--shard=1/{count + 1}")
        assert ended.returncode == 0 and f"4 documents in {count} files: train with" in ended.stdout, ended.stderr
        assert digests(out) == wanted
