"""What a run's directory keeps, and what is taken from someone else's."""

import dataclasses
import json
import shutil
import subprocess
import sys

import jax
import pytest

from generator.language.roles import (
    PACKAGE,
    SMALL,
    Checkpoints,
    Config,
    InputError,
    copy_tokenizer,
    keep_tokenizer,
    load_checkpoint,
    load_tokenizer,
    make_mesh,
    newest_config,
    restore_state,
    save_state,
    save_two,
    state_for,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax drops these


def texts() -> set[str]:
    """Returns fields that only the command line sets: paths and the like, and what allows something."""
    fields = (f.name for f in dataclasses.fields(Config) if f.type is str or f.name == "allow_other_data")
    return {*fields} - {"remat", "lora_targets", "offload", "objective"}


FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json"),
    *("merges.txt", "added_tokens.json", "chat_template.jinja", "generation_config.json", "config.json"),
    "additional_chat_templates/tool_use.jinja",
)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    return save_two(tmp_path_factory.mktemp("two"))


@pytest.fixture
def files(tmp_path):
    """Makes a folder with all files that a tokenizer may have, and one other."""
    for name in (*FILES, "model.safetensors"):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(name)
    return tmp_path / "files"


def test_what_a_run_had_is_recorded_and_the_run_can_be_moved(files, tmp_path, monkeypatch):
    """Nothing that is recorded is obeyed; the files of the data have a hash beside it, in data/metadata."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site/~broken-1.0.dist-info").mkdir(parents=True)  # as an interrupted pip leaves it: without a name
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    given = dict.fromkeys(texts(), "/home/user/x") | {
        "tokenizer": str(files / "tokenizer.json"),
        "allow_other_data": True,
    }
    checkpoints = Checkpoints(str(tmp_path / "run"), dataclasses.replace(SMALL, **given)).open()
    save_state(checkpoints, 3, state_for(SMALL))
    checkpoints.close()
    shutil.rmtree(files)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    kept = {str(path.relative_to(moved / "tokenizer")) for path in (moved / "tokenizer").rglob("*") if path.is_file()}
    assert kept == set(FILES)
    recorded = json.loads((moved / "3/config/metadata").read_text())
    assert given.items() <= recorded.items() and recorded["versions"]["jax"] == jax.__version__
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=PACKAGE).stdout.strip()
    git = recorded["versions"]["git"].removesuffix("-dirty")  # of the package, wherever it is run
    assert head.startswith(git) and bool(git) == bool(head)
    tokenizer = str(moved / "tokenizer/tokenizer.json")
    assert newest_config(str(moved)) == dataclasses.replace(SMALL, tokenizer=tokenizer)
    with pytest.raises(InputError, match="began with --data '/home/user/x': give it, none is taken"):
        restore_state(moved)
    assert restore_state(moved, dataclasses.replace(SMALL, data="a", eval_data="b", tokenizer=tokenizer))[0] == 3


def test_a_run_that_is_refused_leaves_the_directory_as_it_was(two_checkpoints, files, tmp_path):
    directory = shutil.copytree(two_checkpoints, tmp_path / "run")
    (directory / "9.orbax-checkpoint-tmp").mkdir()
    path = directory / "7/config/metadata"
    fields = json.loads(path.read_text()) | {"architecture": "mamba"}
    path.write_text(json.dumps({name: value for name, value in fields.items() if name != "checksum"}))
    before = sorted(directory.rglob("*"))
    with pytest.raises(InputError, match="of another architecture"):
        restore_state(directory, dataclasses.replace(SMALL, tokenizer=str(files / "tokenizer.json")))
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("name", sorted(texts()))
def test_no_text_of_a_checkpoint_becomes_a_setting(name, two_checkpoints, tmp_path):
    """Paths, patterns and flags in someone else's folder could name anything on this machine."""
    directory = shutil.copytree(two_checkpoints, tmp_path / "run")
    path = directory / "7/config/metadata"
    fields = json.loads(path.read_text()) | {name: "/theirs"}
    del fields["checksum"]
    path.write_text(json.dumps(fields))
    kept = {"tokenizer": str(directory / "tokenizer/tokenizer.json")} if name == "tokenizer" else {}
    assert newest_config(str(directory)) == dataclasses.replace(SMALL, **kept)


def test_another_tokenizer_is_refused_and_the_same_is_kept_once(files, tmp_path):
    (tmp_path / "run/tokenizer").mkdir(parents=True)  # of weights imported without one
    (tmp_path / "run/tokenizer/config.json").write_text("the model's")
    for _ in range(2):
        keep_tokenizer(str(files / "tokenizer.json"), tmp_path / "run")
    assert (tmp_path / "run/tokenizer/config.json").read_text() == "the model's"
    assert (tmp_path / "run/tokenizer/tokenizer.json").read_text() == "tokenizer.json"
    (files / "tokenizer.json").write_text("another")
    with pytest.raises(InputError, match=r"this run has .*: give a new directory, or --allow-other-data"):
        keep_tokenizer(str(files / "tokenizer.json"), tmp_path / "run")
    keep_tokenizer(str(files / "tokenizer.json"), tmp_path / "run", replace=True)
    texts = {path.parent.name[:10]: path.read_text() for path in tmp_path.glob("run/*/tokenizer.json")}
    assert texts == {"tokenizer": "another", "tokenizer-": "tokenizer.json"}  # the first is put aside
    assert (tmp_path / "run/tokenizer/config.json").read_text() == "the model's"


def test_links_out_of_a_folder_are_refused(files, tmp_path, monkeypatch):
    """Links in a cache of the Hub, from snapshots to blobs, are followed."""
    cache = tmp_path / "cache/models--a"
    (cache / "snapshots/1").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for name in "tokenizer.json", "config.json":
        (cache / "blobs" / name).write_text("a blob")
        (cache / "snapshots/1" / name).symlink_to(f"../../blobs/{name}")
    copy_tokenizer(str(cache / "snapshots/1/tokenizer.json"), tmp_path / "copied")
    assert (tmp_path / "copied/tokenizer.json").read_text() == "a blob"
    (tmp_path / "secret").write_text("secret")
    for place, target in [
        (cache / "snapshots/1/vocab.json", tmp_path / "secret"),
        (files / "merges.txt", tmp_path / "secret"),
        (files / "tokenizer.json", "../cache/models--a/blobs/tokenizer.json"),
        (files / "additional_chat_templates/more.jinja", "../../secret"),
    ]:
        there = place.read_text() if place.exists() else None
        place.unlink(missing_ok=True)
        place.symlink_to(target)
        with pytest.raises(InputError, match=f"{place.name}: is a link to .*, outside of"):
            copy_tokenizer(str(place.parents[place.suffix == ".jinja"] / "tokenizer.json"), tmp_path / "out")
        place.unlink()
        if there:
            place.write_text(there)
    (files / "vocab.json").unlink()
    (files / "vocab.json").symlink_to("tokenizer.json")  # in the same folder
    copy_tokenizer(str(files / "tokenizer.json"), tmp_path / "out")
    assert "secret" not in {path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    monkeypatch.setattr(sys.modules[copy_tokenizer.__module__], "LARGEST_FILE", 3)
    with pytest.raises(InputError, match="is not a file of at most 3 bytes"):
        copy_tokenizer(str(files / "tokenizer.json"), tmp_path / "more")


def test_which_step_is_read_is_told(two_checkpoints, tmp_path, capsys):
    directory = shutil.copytree(two_checkpoints, tmp_path / "run")
    (directory / "12.orbax-checkpoint-tmp-1").mkdir()  # as during a save
    load_checkpoint(str(directory), make_mesh(1, 1, 1))
    told = capsys.readouterr().err
    assert f"step 7 of {directory}" in told and "step 12 is there by half" in told
    load_checkpoint(str(directory), make_mesh(1, 1, 1), 3)
    assert capsys.readouterr().err == f"step 3 of {directory}\n"
    with pytest.raises(InputError, match=r"there is no checkpoint of step 5; there are: \[3, 7\]"):
        load_checkpoint(str(directory), make_mesh(1, 1, 1), 5)


TOKENIZERS = {
    "a bad regular expression": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}},
    "a bad replacement": {"normalizer": {"type": "Replace", "pattern": {"Regex": "[z-a]"}, "content": ""}},
    "no model": {"model": None},
    "tokens of another kind": {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
}


@pytest.mark.parametrize("change", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer_that_cannot_be_read_is_named(change, tmp_path):
    whole = {"added_tokens": [], "model": {"type": "BPE", "vocab": {"t": 0}, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole | change))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_tokenizer(str(tmp_path / "tokenizer.json"))
