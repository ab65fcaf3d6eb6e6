"""Training for a number of passes over the data."""

import collections
import dataclasses
import importlib
import shutil

import numpy as np

from generator.language import requires
from generator.language.roles import SMALL, TEXTS, Batches, read_metrics, write_jsonl

requires("train/epochs")


def test_epochs_set_the_steps_also_of_a_resumed_run_with_another_batch_size(tmp_path, monkeypatch):
    module = importlib.import_module("..trainer", __package__)
    read = Batches.__next__
    seen = collections.Counter()

    def count(self) -> dict[str, np.ndarray]:
        batch = read(self)
        for tokens, ids in zip(batch["tokens"], batch["segment_ids"], strict=True):
            seen.update(bytes(tokens[(ids == i) & (tokens < 256)].tolist()) for i in range(1, ids.max() + 1))
        return batch

    monkeypatch.setattr(Batches, "__next__", count)
    data = write_jsonl(tmp_path, TEXTS[:40])
    run = tmp_path / "run"
    config = dataclasses.replace(SMALL, vocab_size=260, data=data, eval_share=0.0, sequence_length=512, epochs=2.0)
    config = dataclasses.replace(config, batch_size=2, checkpoint_every=2, keep_last=99, checkpoint_dir=str(run))
    module.train(config)
    whole = collections.Counter(seen)
    epochs = [x["train/epoch"] for x in read_metrics(run) if "train/epoch" in x]
    texts = {text.encode() for text in TEXTS[:40]}
    assert set(whole) == texts and set(whole.values()) <= {2, 3} and sum(whole.values()) < 2 * 40 + 20
    assert epochs[-1] >= 2 > epochs[-2]
    for step in range(4, len(epochs) + 1):
        shutil.rmtree(run / str(step), ignore_errors=True)
    seen.clear()
    module.train(dataclasses.replace(config, batch_size=1))  # from step 2 on
    again = [x["train/epoch"] for x in read_metrics(run) if "train/epoch" in x]
    assert again[-1] >= 2 > again[-2] and again[:2] == epochs[:2] and max(seen.values()) <= 2
