"""The metrics of a run: no step appears twice, and nothing else in the file is lost."""

import dataclasses
import datetime
import importlib
import json
import types

import jax.numpy as jnp
import pytest

from generator.language.roles import SMALL, InputError, Monitor, drop_later_records


def read_metrics(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("end", ["", '{"step": 9', '{"step": 9}'])
def test_records_of_later_steps_are_cut_off(end, tmp_path):
    """Half a line at the end is cut off too; what is not a record stays."""
    other = [b"garbage\n", b"[]\n", b'{"a": 1}\n', b"\xff\xfe\n", b'{"step": null}\n', b'"x"\n']
    lines = [json.dumps({"step": step // 2, "pad": "x" * (step % 7)}).encode() + b"\n" for step in range(200)]
    for step in -1, 0, 1, 50, 98, 99, 500:
        path = tmp_path / f"{step}.jsonl"
        path.write_bytes(b"".join([*other, *lines, *other]) + end.encode())
        drop_later_records(path, step)
        assert path.read_bytes() == b"".join([*other, *lines[: 2 * (step + 1)], *(other if step >= 99 else ())])
    drop_later_records(tmp_path / "new", 3)
    assert (tmp_path / "new").read_bytes() == b""


def test_skipped_steps_are_counted_and_too_many_end_the_run(tmp_path):
    config = dataclasses.replace(SMALL, max_skipped=2, steps=9)
    monitor = Monitor(tmp_path, config, 0)
    skipped = {"train/loss": jnp.array(jnp.nan), "train/skipped": jnp.array(True), "train/epoch": 0.5}
    taken = {"train/loss": jnp.array(1.0), "train/skipped": jnp.array(False), "train/epoch": 0.5}
    for number, metrics in enumerate([taken, skipped, skipped, taken, skipped, skipped], 1):
        monitor.step(number, metrics)
    with pytest.raises(InputError, match="no finite gradients in 3 steps up to 7: lower --learning-rate"):
        monitor.step(7, skipped)
    monitor.close()

    def no_constant(name):
        raise ValueError(f"{name} is not JSON")

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=no_constant) for line in lines]
    assert [r["train/skipped"] for r in records] == [0, 1, 2, 0, 1, 2, 3]
    assert [r.get("train/loss") for r in records] == [1.0, None, None, 1.0, None, None, None]


def test_all_metrics_go_through_one_method(tmp_path, monkeypatch):
    """Where another tracker is added: with another method in its place, nothing is in the file."""
    monitor = Monitor(tmp_path, SMALL, 0)
    monitor.log_metrics(1, {"train/loss": 2.0, "nothing": float("nan")})
    ((time, record),) = [(record.pop("time"), record) for record in read_metrics(tmp_path)]
    assert record == {"step": 1, "train/loss": 2.0}
    now = datetime.datetime.now(datetime.UTC)
    assert abs(now - datetime.datetime.fromisoformat(time)) < datetime.timedelta(minutes=1)
    logged = []
    sums = {"cross_entropy": 6.0, "targets": 2.0, "objective": {}}
    monkeypatch.setattr(Monitor, "log_metrics", lambda _, step, metrics: logged.append((step, metrics)))
    monitor.step(2, {"train/loss": 1.0, "train/skipped": False, "train/epoch": 0.5})
    data, state = types.SimpleNamespace(to_devices=dict), types.SimpleNamespace(model=None)
    train = importlib.import_module("..trainer", __package__)
    train.evaluate_held_out(lambda *_: sums, 2, state, [{}], data, monitor)
    monitor.close()
    assert logged[0][1]["train/loss"] == 1.0 and logged[1:] == [(2, {"eval/loss": 3.0})]
    assert len(read_metrics(tmp_path)) == 1
