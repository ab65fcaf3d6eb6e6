"""Checkpoints written in the background by Orbax."""

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

import absl.logging
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from generator.marks import point
from generator.roles import Batches, Decoder, InputError, RestoreRows, SaveRows, abstract, named_arrays


class Config:
    # checkpoints, TensorBoard events and plot; a run goes on from what is there; "": runs/DATE-TIME, new
    checkpoint_dir: str = ""
    keep_last: int = 3  # newest checkpoints that are kept
    keep_every: int = 0  # checkpoints at multiples of this many steps are kept for good; 0: none


@jax.jit
def checksums(arrays: dict[str, Array]) -> Array:
    """The bits of each array, summed modulo 2**32: [n] uint32. Orbax itself does not notice a changed byte."""
    bits = [jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}") for x in arrays.values()]
    return jnp.stack([jnp.sum(x, dtype=jnp.uint32) for x in bits])


def changes(old: Config, new: Config) -> str:
    """The fields that differ: `width 64 -> 32, steps 100 -> 200`."""
    pairs = ((f.name, getattr(old, f.name), getattr(new, f.name)) for f in dataclasses.fields(Config))
    return ", ".join(f"{name} {a} -> {b}" for name, a, b in pairs if a != b and name != "checkpoint_dir")


class Checkpoints:
    """The checkpoints in a directory; `config` None: only to read."""

    def __init__(self, directory: str, config: Config | None):
        absl.logging.set_verbosity(absl.logging.ERROR)  # Orbax tells every step of its work
        self.directory, self.config = epath.Path(directory).expanduser().resolve(), config
        options = ocp.CheckpointManagerOptions(read_only=True)
        if config:
            policies = [ocp.checkpoint_managers.LatestN(config.keep_last)]
            policies += [ocp.checkpoint_managers.EveryNSteps(config.keep_every)] if config.keep_every else []
            options = ocp.CheckpointManagerOptions(
                preservation_policy=ocp.checkpoint_managers.AnyPreservationPolicy(policies),
                cleanup_tmp_directories=True,  # half a checkpoint is there when a run was killed while it saved
            )
        self.manager = ocp.CheckpointManager(self.directory, options=options)

    def save(self, step: int, model: Decoder, training: Any = None, data: Batches | None = None) -> None:
        """Copies the arrays from their devices and returns; they are written in the background."""
        items = {"config": ocp.args.JsonSave(dataclasses.asdict(self.config))}
        for item, tree in {"model": model, "training": training}.items():
            if tree is not None:
                arrays = named_arrays(tree)
                point("Checkpoints.save", arrays, step)
                items[item] = ocp.args.StandardSave({"arrays": arrays, "checksums": checksums(arrays)})
        if data is not None:
            items["data"] = SaveRows(data.get_state())
        self.manager.save(step, args=ocp.args.Composite(**items))

    def read(self, step: int, item: str, arguments: ocp.args.CheckpointArgs) -> Any:
        return self.manager.restore(step, args=ocp.args.Composite(**{item: arguments}))[item]

    def read_config(self, step: int) -> Config:
        fields = self.read(step, "config", ocp.args.JsonRestore())
        point("checkpoints.config", fields)
        return Config(**fields)

    def read_arrays(self, step: int, item: str, tree: Any) -> Any:
        """The arrays of an item, in the structure and layout of an abstract tree."""
        wanted, folder = named_arrays(tree), self.directory / str(step)
        point("Checkpoints.wanted", wanted, step)
        saved = ocp.StandardCheckpointHandler().metadata(folder / item).tree["arrays"]
        for name in wanted | saved:
            here, there = (tuple(x[name].shape) if name in x else "absent" for x in (wanted, saved))
            if here != there:
                settings = changes(self.read_config(step), self.config) if self.config else ""
                difference = f"{name} is {there} there, {here} here; settings there -> here: {settings or 'the same'}"
                raise InputError(f"{folder} is of another model: {difference}: mend these, or give another directory")
        target = {"arrays": wanted, "checksums": np.zeros(len(wanted), np.uint32)}
        found = self.read(step, item, ocp.args.StandardRestore(target))
        arrays = {name: found["arrays"][name] for name in wanted}
        if not np.array_equal(found["checksums"], checksums(arrays)):
            raise ValueError(f"{item} is not what was saved, by its checksums")
        point("Checkpoints.read", arrays, tree, step)
        return jax.tree.unflatten(jax.tree.structure(tree), arrays.values())

    def read_newest(self, read: Callable[[int], Any]) -> tuple[Any, list[int]]:
        """`read(step)` for the newest step whose checkpoint is good, or None; and the steps after it, all damaged."""
        damaged = []
        for step in sorted(self.manager.all_steps(), reverse=True):
            try:
                return read(step), damaged
            except InputError:  # of another model
                raise
            except Exception as error:  # Orbax raises plain Exceptions too
                reason = " ".join(str(error).partition(". ")[0].split())
                print(f"warning: checkpoint {self.directory / str(step)} is damaged: {reason}", file=sys.stderr)
                damaged.append(step)
                sys.unraisablehook = lambda _: None  # Orbax drops reads that wait, each with a page of text
        if damaged:
            raise InputError(f"{self.directory}: every checkpoint is damaged: mend one, or give another directory")
        return None, []

    def restore(self, model: Decoder, training: Any, data: Batches) -> tuple[int, Config, Decoder, Any] | None:
        """Step, Config, model and training state of the newest good checkpoint, laid out as the abstract ones given.

        `data` is set to where it was. The training state of imported weights is None. None: there is no checkpoint.
        Damaged ones are put aside under another name, so that their steps can be saved again.
        """

        def read(step):
            saved, parameters = self.read_config(step), self.read_arrays(step, "model", model)
            arrays = self.read_arrays(step, "training", training) if step > 0 else None
            if step > 0:
                data.set_state(self.read(step, "data", RestoreRows()), step)
            return step, saved, parameters, arrays

        found, damaged = self.read_newest(read)
        for step in damaged if jax.process_index() == 0 else []:
            (self.directory / str(step)).rename(self.directory / f"damaged-{step}-{time.time_ns()}")
        self.manager.reload()
        return found


def load_checkpoint(directory: str, mesh: Mesh) -> tuple[Config, Decoder]:
    """The Config and the parameters of the newest good checkpoint in a directory, laid out over the mesh."""
    checkpoints = Checkpoints(directory, None)

    def read(step):
        config = checkpoints.read_config(step)
        return config, checkpoints.read_arrays(step, "model", abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh))

    found, _ = checkpoints.read_newest(read)
    if found is None:
        raise InputError(f"{directory}: there is no checkpoint: give the --checkpoint-dir of a training run")
    return found


def newest_config(directory: str) -> Config | None:
    """The Config of the newest good checkpoint in a directory, None where there is none."""
    if not directory or not epath.Path(directory).expanduser().is_dir():
        return None
    checkpoints = Checkpoints(directory, None)
    return checkpoints.read_newest(checkpoints.read_config)[0]
