"""Evaluation of a checkpoint by itself."""

import dataclasses
import email
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import SMALL, InputError, evaluate

requires("evaluate", "train/command")


def test_a_checkpoint_is_evaluated_as_in_training(tmp_path):
    """Uses the same held-out data; a byte tokenizer has one token per byte, and one more per document."""
    data = Path(email.__file__).parent / "mime/[m]*.py"
    config = dataclasses.replace(SMALL, steps=2, eval_batches=9999, data=str(data), eval_data=str(data))
    importlib.import_module("..trainer", __package__).train(dataclasses.replace(config, checkpoint_dir=str(tmp_path)))
    found = evaluate(str(tmp_path), str(data), config.batch_size)
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    (told,) = (record["eval/loss"] for record in records if "eval/loss" in record)
    np.testing.assert_allclose(found["loss"], told, rtol=1e-6)
    np.testing.assert_allclose(found["perplexity"], np.exp(told), rtol=1e-6)
    size = sum(path.stat().st_size for path in data.parent.glob("[m]*.py"))
    ends = sum(1 for path in data.parent.glob("[m]*.py") if path.stat().st_size)
    assert ends - 1 <= found["of_which_end_a_text"] <= ends
    assert found["tokens"] == pytest.approx(size + ends, abs=ends * 2)
    np.testing.assert_allclose(found["bits_per_byte"], found["loss"] * found["tokens"] / np.log(2) / size, rtol=0.02)
    assert evaluate(str(tmp_path), str(data), 2, batches=1)["tokens"] < found["tokens"]
    with pytest.raises(InputError, match="--batches -1: must be at least 1"):
        evaluate(str(tmp_path), str(data), batches=-1)
    with pytest.raises(InputError, match="there is no checkpoint"):
        evaluate(str(tmp_path / "none"), str(data))
