"""Checkpoints of how far each row of a batch has read the data."""

import dataclasses
import json
import zlib
from typing import Any

import orbax.checkpoint as ocp
from etils import epath


class RowsHandler(ocp.CheckpointHandler):
    """Writes the states of each process's own rows; any number of processes can read those of all."""

    def save(self, directory: epath.Path, args: "Rows") -> None:
        if args.states:
            text = json.dumps(args.states)
            (directory / f"rows-{min(args.states)}.json").write_text(f"{text}\n{zlib.crc32(text.encode())}")

    def restore(self, directory: epath.Path, args: "Rows") -> dict[int, Any]:
        states = {}
        for path in directory.glob("rows-*.json"):
            text, _, checksum = path.read_text().partition("\n")
            if checksum != str(zlib.crc32(text.encode())):
                raise ValueError(f"{path} is not what was saved, by its checksum")
            states |= json.loads(text)
        return {int(row): state for row, state in states.items()}


@ocp.args.register_with_handler(RowsHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class Rows(ocp.args.CheckpointArgs):
    states: dict[int, Any] | None = None  # by row; None to restore
