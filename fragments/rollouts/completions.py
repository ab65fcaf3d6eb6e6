"""Records of completions, in completions.jsonl of a run's directory."""

import json
from typing import Any

from etils import epath

from generator.language import requires, splice
from generator.language.roles import drop_later_records, may_fail

requires("rollouts/rollouts", "train/outputs")


class CompletionRecords:
    """Records completions; drops those of later steps than `step`, as their rollouts come again."""

    def __init__(self, folder: epath.Path, step: int):
        self.path = folder / "completions.jsonl"
        self.failed: set[str] = set()
        with may_fail(self.path.name, self.failed):
            if self.path.exists():
                drop_later_records(self.path, step)

    def write(self, records: list[dict[str, Any]]) -> None:
        with may_fail(self.path.name, self.failed), open(self.path, "a") as file:
            file.writelines(f"{json.dumps(record)}\n" for record in records)


@splice("Monitor.copied", optional=True)
def _(names):
    names.append("completions.jsonl")


@splice("test_storage.recorded", optional=True)
def _(monitor, step):
    CompletionRecords(monitor.folder, step).write([{"step": step + i} for i in (1, 2, 3)])


@splice("test_storage.files", optional=True)
def _(directory, names):
    of_completions = map(json.loads, (directory / "completions.jsonl").read_text().splitlines())
    assert [record["step"] for record in of_completions] == [1, 2, 3, 4, 5]
    names.remove("completions.jsonl")
