"""Directories that import and export write, on disk or on an object store: complete or not there."""

import importlib
import json
import shutil

import numpy as np
import pytest
from etils import epath
from safetensors.numpy import save_file

from generator.language import excludes, point, requires, splice
from generator.language.roles import (
    PACKAGE,
    InputError,
    assert_same,
    atomic_directory,
    exported_config,
    in_transformers,
    load_checkpoint,
    make_mesh,
    named_arrays,
    plain_bytes,
    random_model,
    read_tensors,
    run_python,
    save_hf,
)

requires("checkpoint/convert")

excludes("reward_head")  # whose models have no logits in transformers


@pytest.fixture(scope="module")
def model():
    return random_model(exported_config())


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("hf") / "exported"
    save_hf(exported_config(), model, directory)
    return directory


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copied")


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
    with pytest.raises(InputError, match=r"cannot be written: .*: give another path"), atomic_directory("/proc/run"):
        pass
    for name in "run", "mine":  # mine.half is someone else's, or of an export that goes on
        (tmp_path / "new" / "mine.half").mkdir(exist_ok=True)
        with pytest.raises(InputError, match="already exists"), atomic_directory(str(tmp_path / "new" / name)):
            pass
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"run", "mine.half"}


def test_a_store_that_cannot_be_reached_is_named_and_no_folder_is_made(tmp_path):
    program = f"import os, runpy, sys; sys.path.insert(0, os.getcwd()); os.chdir({str(tmp_path)!r}); "
    program += "sys.modules['gcsfs'] = None; sys.argv[1:] = ['export', 'gs://bucket/run', 'hf']; "
    program += f"runpy.run_module('{PACKAGE.name}.checkpoint', run_name='__main__')"
    process = run_python("-c", program)
    assert process.returncode == 2 and "Traceback" not in process.stderr, process.stderr
    assert "gcs" in process.stderr or "is on no disk" in process.stderr
    assert not list(tmp_path.iterdir())


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["checkpoint", *map(str, arguments)])
    importlib.import_module("..checkpoint", __package__).main()


def test_import_and_export_from_the_command_line(model, copied, tmp_path, monkeypatch, capsys):
    """Copies other files too; rounds to bf16 as transformers does, and the same tensors only."""
    for name in "tokenizer.json", "generation_config.json":
        (copied / name).write_text("{}")
    with pytest.raises(SystemExit):  # as that is no tokenizer
        run(monkeypatch, "import", copied, tmp_path / "run")
    assert f"tokenizer {copied / 'tokenizer.json'}" in capsys.readouterr().err and not (tmp_path / "run").exists()
    plain_bytes(copied)
    said = json.loads((copied / "config.json").read_text())
    said |= {"bos_token_id": 11, "eos_token_id": [7, 8], "pad_token_id": 9, "of_use": {}}
    said["torch_dtype"] = said.pop("dtype")
    (copied / "config.json").write_text(json.dumps(said))
    run(monkeypatch, "import", copied, tmp_path / "run")
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "ours")
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "half", "--dtype", "bfloat16")
    for name in "tokenizer.json", "generation_config.json":
        assert (tmp_path / "ours" / name).exists()
    assert_same(read_tensors(tmp_path / "ours"), read_tensors(copied))
    in_transformers(copied, "bfloat16").save_pretrained(tmp_path / "rounded")
    assert_same(read_tensors(tmp_path / "half"), read_tensors(tmp_path / "rounded"))
    assert json.loads((tmp_path / "ours/config.json").read_text()) == said
    assert json.loads((tmp_path / "half/config.json").read_text()) == said | {"torch_dtype": "bfloat16"}
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'run'}: the weights of {copied} as step 0, with its tokenizer",
        f"{tmp_path / 'ours'}: in float32, with its tokenizer",
        f"{tmp_path / 'half'}: in bfloat16, with its tokenizer",
    ]
    config, again = load_checkpoint(str(tmp_path / "run"), make_mesh())
    assert config.tokenizer == str(tmp_path / "run/tokenizer/tokenizer.json")
    ours, theirs = named_arrays(again), named_arrays(model)
    point("test_convert.command_line", ours, theirs, again, model)
    assert_same(ours, theirs)
    for arguments in (["import", copied, tmp_path / "run"], ["export", tmp_path / "run", tmp_path / "ours"]):
        with pytest.raises(SystemExit) as ended:
            run(monkeypatch, *arguments)
        assert ended.value.code == 2 and "already exists: give a new directory" in capsys.readouterr().err


def test_export_keeps_the_dtype_and_says_what_it_wrote(copied, tmp_path, monkeypatch, capsys):
    """Exports weights alone: without a tokenizer, which is reported, and with a given one."""
    half = {name: x.astype(np.float16) for name, x in read_tensors(copied).items()}
    save_file(half, copied / "model.safetensors")
    said = json.loads((copied / "config.json").read_text()) | {"auto_map": {"AutoConfig": "x--y"}, "dtype": "float16"}
    (copied / "config.json").write_text(json.dumps(said))
    run(monkeypatch, "import", copied, tmp_path / "run")
    assert load_checkpoint(str(tmp_path / "run"), make_mesh())[0].dtype == "bfloat16"  # fp16 underflows in gradients
    assert "without a tokenizer" in capsys.readouterr().out
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "ours", "--step", "0")
    told = capsys.readouterr()
    assert told.err == f"step 0 of {tmp_path / 'run'}\n"
    assert told.out.startswith(f"{tmp_path / 'ours'}: in float16, without a tokenizer, as")
    assert_same(read_tensors(tmp_path / "ours"), half)
    del said["auto_map"]  # an export does not pass on others' code
    assert json.loads((tmp_path / "ours/config.json").read_text()) == said
    (tmp_path / "given").mkdir()
    (tmp_path / "given/tokenizer.json").write_text("{}")
    given = "--tokenizer", tmp_path / "given/tokenizer.json"
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "more", *given)
    assert (tmp_path / "more/tokenizer.json").exists() and "with its tokenizer" in capsys.readouterr().out
    (tmp_path / "given/tokenizer.json").unlink()
    for wrong, told in (given, "there is no such file"), (("--step", "5"), "no checkpoint of step 5; there are: [0]"):
        with pytest.raises(SystemExit):
            run(monkeypatch, "export", tmp_path / "run", tmp_path / "none", *wrong)
        assert told in capsys.readouterr().err and not (tmp_path / "none").exists()


@splice("test_storage.bucket", optional=True)
def _():
    with atomic_directory("gs://bucket/hf") as half:
        (half / "config.json").write_text("{}")
    assert (epath.Path("gs://bucket/hf") / "config.json").exists()
