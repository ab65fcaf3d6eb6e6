"""Documents that are tokenised before training, and mixtures of sources, against the documents themselves."""

import collections
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    PACKAGE,
    PRESETS,
    Batches,
    InputError,
    assert_same,
    held_out_batches,
    load_tokenizer,
    make_mesh,
    open_documents,
    open_tokens,
    plain_bytes,
    read_sequences,
    refused_prepare,
    run_prepare,
)

requires("prepare", "data/mixture", "data/prepared")

TEXTS = [f"document {i}: " + "ünï" * (i % 7) * (i % 11) for i in range(120)] + ["", "x" * 5000]


def write_rows(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_jsonl(path: Path, texts: list[str] = TEXTS) -> str:
    return write_rows(path, [{"text": text} for text in texts])


def write_tokenizer(folder: Path) -> str:
    plain_bytes(folder)
    return str(folder / "tokenizer.json")


def make_config(data: str, **fields):
    fields = dict(data=data, sequence_length=64, batch_size=4, vocab_size=300) | fields
    return dataclasses.replace(PRESETS["tiny"], **fields)


def make_batches(config) -> Batches:
    return Batches(config, jax.sharding.NamedSharding(make_mesh(1, 1, 1), jax.sharding.PartitionSpec()))


def take(data, count: int) -> list[dict[str, np.ndarray]]:
    return [next(data) for _ in range(count)]


def assert_equal(found: list[dict[str, np.ndarray]], wanted: list[dict[str, np.ndarray]]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert_same(ours, theirs)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> tuple[str, str, str]:
    """Returns a JSONL file, its tokens by a tokenizer, and the tokenizer."""
    folder = tmp_path_factory.mktemp("prepared")
    texts = write_jsonl(folder / "texts.jsonl")
    tokenizer = write_tokenizer(folder)
    ended = run_prepare(texts, folder / "out", "--tokenizer", tokenizer, "--workers", 1)
    assert ended.returncode == 0 and "122 documents" in ended.stdout, ended.stderr
    return texts, str(folder / "out"), tokenizer


def test_prepared_data_gives_the_same_batches(prepared):
    texts, tokens, tokenizer = prepared
    plain = make_config(texts, tokenizer=tokenizer)
    ready = dataclasses.replace(plain, data=tokens)
    rows = list(range(4))
    assert_equal(held_out_batches(ready, rows), held_out_batches(plain, rows))
    wanted, found = make_batches(plain), make_batches(ready)
    assert_equal(take(found, 70), take(wanted, 70))
    again = make_batches(dataclasses.replace(ready, allow_other_data=True))
    again.set_state(wanted.get_state(), 70)  # a run resumes with prepared data in place of texts
    assert_equal(take(again, 30), take(wanted, 30))


def test_what_prepared_data_cannot_be_used_for_is_named(prepared, tmp_path):
    texts, tokens, tokenizer = prepared
    with pytest.raises(InputError, match=r"its tokenizer is .*264.*, and --tokenizer is .*258.*: give the first"):
        open_tokens(tokens, load_tokenizer("bytes"))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", tokens, copy], check=True)
    with pytest.raises(InputError, match=f"{copy} is prepared data: give that by itself"):
        open_documents(str(tmp_path))
    (shard,) = copy.glob("tokens-*")
    content = shard.read_bytes()
    shard.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    documents = open_tokens(str(copy), load_tokenizer(tokenizer))
    with pytest.raises(InputError, match=r"tokens-\w+: Corrupted .*: remove it"):
        list(documents)
    copy = tmp_path / "other"  # threads may still read the first one
    subprocess.run(["cp", "-r", tokens, copy], check=True)
    (shard,) = copy.glob("tokens-*")
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"tokens-\w+: is damaged: remove it"):
        list(open_tokens(str(copy), load_tokenizer(tokenizer)))
    assert run_prepare(texts, copy, "--tokenizer", tokenizer).returncode == 0  # which writes it again
    assert shard.read_bytes() == content
    shard.unlink()
    with pytest.raises(InputError, match=r"tokens-\w+ is missing: start `data prepare` again"):
        open_tokens(str(copy), load_tokenizer(tokenizer))
    (copy / "prepared.json").write_text("{}")
    with pytest.raises(InputError, match=r"prepared\.json: is damaged"):
        open_tokens(str(copy), load_tokenizer(tokenizer))
    with pytest.raises(InputError, match="is on no disk: copy it to one, or mount the bucket"):
        read_sequences(make_config("gs://bucket/data"), "train")


def test_what_cannot_be_prepared_is_named(prepared, tmp_path):
    texts, tokens, tokenizer = prepared
    assert "was prepared from other files, or for another tokenizer" in refused_prepare(
        texts, tokens, "--tokenizer=bytes"
    )
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"')
    assert "must not contain each other" in refused_prepare(tmp_path, tmp_path / "out", "--tokenizer=bytes")
    (tmp_path / "blank.jsonl").write_text("\n\n")
    assert "none of its 0 documents has any text" in refused_prepare(
        tmp_path / "blank.jsonl", tmp_path / "none", "--tokenizer=bytes"
    )
    empty = write_jsonl(tmp_path / "empty.jsonl", [""] * 9)
    assert "none of its 9 documents has any text" in refused_prepare(empty, tmp_path / "void", "--tokenizer", tokenizer)
    assert "bad.jsonl:2: must be JSON with a field text" in refused_prepare(
        tmp_path / "bad.jsonl", tmp_path / "half", "--tokenizer=bytes"
    )
    with pytest.raises(InputError, match="it is not whole: start `data prepare` again"):
        open_tokens(str(tmp_path / "half"), load_tokenizer("bytes"))
    arguments = sys.executable, "-m", f"{PACKAGE.name}.data", "prepare", texts, tmp_path / "full", "--tokenizer=bytes"
    full = ["bash", "-c", 'ulimit -f 4 && exec "$@"', "", *map(str, arguments)]  # 4 KiB, like a full disk
    ended = subprocess.run(full, cwd=PACKAGE.parent, capture_output=True, text=True)
    assert ended.returncode == 74 and ended.stderr.startswith("error: ") and "File too large" in ended.stderr
    assert [path.name for path in tmp_path.glob("full/*")] == ["prepared.json"]


def test_prepare_goes_on_after_a_kill(tmp_path):
    """Kills it once a few files are complete: these stay, and each document is there once, in order."""
    texts = [f"{i} " + "word " * 2000 for i in range(800)]  # 8 MB, in 8 files
    data = write_jsonl(tmp_path / "texts.jsonl", texts)
    out = tmp_path / "out"
    command = [sys.executable, "-m", f"{PACKAGE.name}.data", "prepare", data, str(out), "--tokenizer=bytes"]
    process = subprocess.Popen([*command, "--workers=1"], cwd=PACKAGE.parent, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120

    def whole() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in out.glob("tokens-*") if ".half" not in path.name}

    while len(whole()) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = whole()
    assert 2 <= len(before) < 8
    with pytest.raises(InputError, match="it is not whole"):
        open_tokens(str(out), load_tokenizer("bytes"))
    times = os.stat(data).st_atime_ns, os.stat(data).st_mtime_ns
    subprocess.run([*command, "--workers=2"], cwd=PACKAGE.parent, check=True, stdout=subprocess.DEVNULL)
    assert before.items() <= whole().items() and len(whole()) == 8
    os.utime(data, ns=(0, 0))  # as if rewritten, with as many bytes
    assert "from other files" in refused_prepare(data, out, "--tokenizer=bytes")
    os.utime(data, ns=times)
    assert set(os.listdir(out)) == {*whole(), "prepared.json"}
    tokens = open_tokens(str(out), load_tokenizer("bytes"))
    assert [bytes(tokens[i][1:-1].tolist()).decode() for i in range(len(tokens))] == texts
    shorter = write_jsonl(tmp_path / "shorter.jsonl", texts[:3])  # replaces a shard, with fewer documents
    subprocess.run([*command[:4], shorter, str(tmp_path / "short"), *command[6:]], cwd=PACKAGE.parent, check=True)
    (short,) = (tmp_path / "short").glob("tokens-*")
    os.replace(short, next(out.glob("tokens-*")))
    assert run_prepare(data, out, "--tokenizer=bytes").returncode == 0
    assert len(list(open_tokens(str(out), load_tokenizer("bytes")))) == 800


def test_prepare_goes_on_once_a_file_is_repaired(tmp_path):
    """Keeps complete files, but no half ones nor those of the damaged file; counts nulls and special tokens."""
    tokenizer = write_tokenizer(tmp_path)
    folder, out = tmp_path / "texts", tmp_path / "out"
    folder.mkdir()
    for i in range(4):  # more than 1 MiB each, which fills a shard
        rows = [{"body": f"{i} </s>", "more": "x" * 300_000}] * 4 + [{"body": None}]
        write_rows(folder / f"{i}.jsonl", rows)
    write_rows(folder / "3.jsonl", [*rows, {"body": 3}])
    settings = folder, out, "--tokenizer", tokenizer, "--text-field=body", "--workers=1"
    assert "3.jsonl:6: the text is 3, not a string" in refused_prepare(*settings)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != "prepared.json"}
    assert len(before) == 3 and not [name for name in before if "half" in name]
    write_rows(folder / "3.jsonl", rows)
    ended = run_prepare(*settings)
    assert ended.returncode == 0 and "16 documents in 4 files" in ended.stdout, ended.stderr
    assert "1 rows without a text (null) are left out" in ended.stdout
    assert "of 16 documents: </s> in 4; there they are text: --special-tokens makes them tokens" in ended.stderr
    after = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert before.items() <= after.items() and len(after) == 5
    loaded = load_tokenizer(tokenizer)
    wanted = [[*loaded.encode(f"{i} </s>"), loaded.eos] for i in range(4)]
    assert [ids.tolist() for ids in open_tokens(str(out), loaded)][::4] == wanted


def test_texts_that_grow_while_they_are_read_are_refused(tmp_path):
    """Otherwise parts of a file, which each worker counts by itself, would overlap or miss documents."""
    data = write_jsonl(tmp_path / "texts.jsonl", [f"{i} " + "word " * 2000 for i in range(400)])  # 4 x 1 MB
    command = [sys.executable, "-m", f"{PACKAGE.name}.data", "prepare", data, str(tmp_path / "out")]
    command += ["--tokenizer=bytes", "--workers=1"]
    process = subprocess.Popen(command, cwd=PACKAGE.parent, stderr=subprocess.PIPE, text=True)
    while not [x for x in tmp_path.glob("out/tokens-*") if ".half" not in x.name] and process.poll() is None:
        time.sleep(0.005)
    with open(data, "a") as file:
        file.write('{"text": "more"}\n' * 1000)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and "has changed since this began: start again, which writes anew what" in said
    with pytest.raises(InputError, match="it is not whole"):
        open_tokens(str(tmp_path / "out"), load_tokenizer("bytes"))


def bytes_read(data: str, tokenizer: str) -> int:
    """Returns the bytes that this process reads to begin a run."""
    start = int(Path("/proc/self/io").read_text().split()[1])
    for split in "train", "eval":
        read_sequences(make_config(data, tokenizer=tokenizer), split)
    return int(Path("/proc/self/io").read_text().split()[1]) - start


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_a_run_begins_without_reading_prepared_documents(prepared, tmp_path):
    texts, tokens, tokenizer = prepared
    many = write_jsonl(tmp_path / "texts.jsonl", TEXTS * 50)
    assert run_prepare(many, tmp_path / "out", "--tokenizer", tokenizer, "--workers=1").returncode == 0
    bytes_read(texts, tokenizer)
    assert bytes_read(many, tokenizer) > bytes_read(texts, tokenizer) + 500_000  # to find the lines
    assert abs(bytes_read(str(tmp_path / "out"), tokenizer) - bytes_read(tokens, tokenizer)) < 100


def read_rows(batch: dict[str, np.ndarray]) -> list[str]:
    return [bytes(row[1:][row[1:] > 0].tolist()).decode() for row in batch["tokens"]]


def test_sources_have_their_shares_and_epochs(tmp_path):
    """Mixes 40 and 200 documents that name their source, at 0.75 and 0.25 in every batch."""
    for name, count in ("a", 40), ("b", 200):
        write_jsonl(tmp_path / f"{name}.jsonl", [f"{name}{i:03}" for i in range(count)])
    data = f"0.75:{tmp_path}/a.jsonl,0.25:{tmp_path}/b.jsonl"
    config = make_config(data, sequence_length=5, eval_share=0.1)
    batches = make_batches(config)
    found = [read_rows(batch) for batch in take(batches, 400)]
    assert all(sum(text[0] == "a" for text in batch) == 3 for batch in found)
    counts = collections.Counter(text for texts in found for text in texts)
    a, b = ({text: n for text, n in counts.items() if text[0] == name} for name in "ab")
    assert len(a) == 36 and set(a.values()) <= {33, 34}  # 1200 of 36
    assert len(b) == 180 and set(b.values()) == {2, 3}  # 400 of 180
    held_out = {text for batch in held_out_batches(config, [0, 1, 2, 3]) for text in read_rows(batch)}
    assert held_out == {"a036", "a037", "a038", "a039", "b180", ""} and not {*a, *b} & held_out


def test_a_mixture_goes_on_where_it_was(prepared, tmp_path):
    _, tokens, tokenizer = prepared
    other = write_jsonl(tmp_path / "other.jsonl", [f"other {i}" * (i % 9) for i in range(50)])
    config = make_config(f"2:{tokens},1:{other}", tokenizer=tokenizer)
    whole = make_batches(config)
    before = take(whole, 40)
    state = json.loads(json.dumps(whole.get_state()))
    after = take(whole, 40)
    again = make_batches(config)
    assert_equal(take(again, 40), before)
    later = make_batches(config)
    later.set_state(state, 40)
    assert_equal(take(later, 40), after)
