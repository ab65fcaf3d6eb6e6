"""How far the rows of a batch have read the data, in a checkpoint."""

import dataclasses
import json
from typing import Any

import orbax.checkpoint as ocp
from etils import epath


class RowsHandler(ocp.CheckpointHandler):
    """Each process writes the states of the rows that it keeps; any number of processes reads those of all."""

    def save(self, directory: epath.Path, args: "SaveRows") -> None:
        if args.states:
            (directory / f"rows-{min(args.states)}.json").write_text(json.dumps(args.states))

    def restore(self, directory: epath.Path, args: "RestoreRows") -> dict[int, Any]:
        found = [json.loads(path.read_text()) for path in directory.glob("rows-*.json")]
        return {int(row): state for states in found for row, state in states.items()}


@ocp.args.register_with_handler(RowsHandler, for_save=True)
@dataclasses.dataclass
class SaveRows(ocp.args.CheckpointArgs):
    states: dict[int, Any]  # by row


@ocp.args.register_with_handler(RowsHandler, for_restore=True)
@dataclasses.dataclass
class RestoreRows(ocp.args.CheckpointArgs):
    pass
