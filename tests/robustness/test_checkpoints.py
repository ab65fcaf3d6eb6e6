"""Checkpoints, damaged in every way: the text that they give is as before, or they are refused by name."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from robustness.programs import assert_trained, damaged, drawn, generate, replace, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_file):
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert train(f"--data={data_file}", f"--checkpoint-dir={folder}").code == 0
    return folder


@pytest.fixture(scope="module")
def text(trained):
    ended = generate(trained)
    assert ended.code == 0
    return ended.out


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def edit(folder, change):
    (path,) = (file for file in (folder / "1/config").iterdir() if file.is_file() and file.read_text()[:1] == "{")
    fields = json.loads(path.read_text())
    del fields["checksum"]  # which tells of any change; without it, what was changed is told
    change(fields)
    path.write_text(json.dumps(fields))


VALUES = [None, 0, -1, 10**30, math.nan, math.inf, "x", [], {}, True]
FIELDS = [
    "width",
    "kv_heads",
    "head_size",
    "dtype",
    "rope_theta",
    "norm_epsilon",
    "remat",
    "batch_size",
    "data",
    "seed",
]
EDITS = [(field, value) for field in FIELDS for value in VALUES]


@pytest.mark.parametrize(("field", "value"), drawn(EDITS), ids=repr)
def test_a_field_of_a_config(field, value, copy, text):
    edit(copy, lambda fields: fields.update({field: value}))
    ended = generate(copy)
    # no path is taken from a checkpoint, whatever it is
    right = field == "data" or ((field, value) == ("seed", 0) and value is not True)
    assert ended.refused != right
    assert right or f"--{field.replace('_', '-')} " in ended.err
    assert not right or ended.out == text


@pytest.mark.parametrize("change", ["one missing", "one unknown", "none"])
def test_fields_that_a_config_has(change, copy):
    changes = {
        "one missing": lambda fields: fields.pop("width"),
        "one unknown": lambda fields: fields.update(other=1),
        "none": lambda fields: fields.clear(),
    }
    edit(copy, changes[change])
    assert generate(copy).refused


FILES = ["1/config", "1/model", "1/_CHECKPOINT_METADATA"]
CASES = [(part, kind) for part in FILES for kind in [*damaged(bytes(99), 0), "a folder", "gone"]]


@pytest.mark.parametrize(("part", "kind"), drawn(CASES), ids=repr)
def test_a_file(part, kind, copy, text):
    """The largest file of a part, or the part itself."""
    path = max(
        [file for file in (copy / part).rglob("*") if file.is_file()] or [copy / part], key=lambda f: f.stat().st_size
    )
    changed = damaged(path.read_bytes(), 3) | {"a folder": None}
    path.unlink() if kind == "gone" else replace(path, changed[kind])
    ended = generate(copy)
    assert ended.refused or ended.out == text


def test_a_tokenizer_that_is_gone(copy):
    """It is looked for in the run's directory, and at no other path that a checkpoint names."""
    edit(copy, lambda fields: fields.update(tokenizer="/no/such/tokenizer.json"))
    ended = generate(copy)
    assert ended.refused and f"{copy}/tokenizer/tokenizer.json is not there" in ended.err
    assert "/no/such" not in ended.err and "give token ids, or start with --tokenizer" in ended.err


def test_a_good_run_goes_on(trained, data_file):
    assert train(f"--data={data_file}", f"--checkpoint-dir={trained}", "--steps=2").code == 0
    assert_trained(trained, 2)
