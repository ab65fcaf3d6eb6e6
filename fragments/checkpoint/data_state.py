"""Checkpoints of rollouts, of which each process has its own rows."""

import dataclasses
import json
import zlib
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from generator.language import proceed, requires, splice

requires("rollouts")


class RowsHandler(ocp.CheckpointHandler):
    """Writes the states of each process's own rows; any number of processes can read those of all."""

    def save(self, directory: epath.Path, args: "Rows") -> None:
        if args.states:
            text = json.dumps(args.states)
            (directory / f"rows-{min(args.states)}.json").write_text(f"{text}\n{zlib.crc32(text.encode())}")

    def restore(self, directory: epath.Path, args: "Rows") -> dict[str, Any]:
        states = {}
        for path in directory.glob("rows-*.json"):
            text, _, checksum = path.read_text().partition("\n")
            if checksum != str(zlib.crc32(text.encode())):
                raise ValueError(f"{path} is not what was saved, by its checksum")
            states |= json.loads(text)
        return states


@ocp.args.register_with_handler(RowsHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class Rows(ocp.args.CheckpointArgs):
    states: dict[int, Any] | None = None  # by row; None to restore


@splice("Checkpoints.data")
def _(data, items):
    state = data.get_state()
    if all(isinstance(name, int) for name in state):
        items["data"] = Rows(state)
    else:
        proceed()


@splice("Checkpoints.read_data")
def _(self, step, config, data, place):
    rows = self.read(step, "data", Rows()) if data is not None and step > 0 else {}
    if len(rows) not in (0, config.batch_size):
        raise ValueError(f"data has {len(rows)} rows of {config.batch_size}")
    if rows:
        place = rows
    else:
        proceed()
