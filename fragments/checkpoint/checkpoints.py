"""Checkpoints written in the background by Orbax."""

import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import absl.logging
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    ARCHITECTURE,
    Batches,
    Decoder,
    InputError,
    LazyArray,
    absolute,
    abstract,
    check_config,
    keep_tokenizer,
    kept_tokenizer,
    named_arrays,
)


class Config:
    checkpoint_dir: str = ""  # for checkpoints and metrics; a run resumes from it; "": a new runs/DATE-TIME
    keep_last: int = 3  # newest checkpoints that are kept
    keep_every: int = 0  # checkpoints at multiples of this many steps are kept for good; 0: none


@jax.jit
def checksums_on_devices(arrays: dict[str, Array]) -> tuple[Array, Array]:
    point("checksums_on_devices.arrays", arrays)
    bits = [jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}") for x in arrays.values()]
    finite = [jnp.all(jnp.isfinite(x)) for x in arrays.values()]
    return jnp.stack([jnp.sum(x, dtype=jnp.uint32) for x in bits]), jnp.all(jnp.stack(finite))


def checksums(arrays: dict[str, Any]) -> tuple[Any, Any]:
    """Sums each array's bits modulo 2**32, [n] uint32, as Orbax misses changed bytes; says if all is finite."""
    if not any(isinstance(x, LazyArray) for x in arrays.values()):
        return checksums_on_devices(arrays)
    read = map(np.asarray, arrays.values())  # one at a time, and in fp32
    point("checksums.read", read)
    sums, finite = zip(*((x.view("uint32").sum(dtype="uint32"), np.isfinite(x).all()) for x in read), strict=True)
    return np.array(sums), all(finite)


def command_line_only() -> dict[str, Any]:
    """Returns defaults of the settings never taken from a checkpoint: text, such as paths, and consent."""
    with point("command_line_only.names"):
        names = {"remat"}  # whose text can only name what is in this package
    fields = [f for f in dataclasses.fields(Config) if f.type is str or f.name.startswith("allow_")]
    return {f.name: f.default for f in fields if f.name not in names}


def changes(old: Config, new: Config) -> str:
    """Lists the fields that differ: `width 64 -> 32, steps 100 -> 200`."""
    names = [f.name for f in dataclasses.fields(Config) if f.name not in command_line_only()]
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
    return ", ".join(f"{name} {a} -> {b}" for name, a, b in pairs if a != b)


def json_checksum(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


def save_json(fields: dict[str, Any]) -> ocp.args.JsonSave:
    return ocp.args.JsonSave(fields | {"checksum": json_checksum(fields)})


class LazyArrayHandler(ocp.type_handlers.NumpyHandler):
    """Writes arrays one at a time, so that only one is in memory."""

    async def serialize(self, values, infos, args=None):
        for value, info, arg in zip(values, infos, args, strict=True):
            [written.result() for written in await super().serialize([np.asarray(value)], [info], [arg])]
        return []


def save_lazily(tree: Any) -> ocp.args.PyTreeSave:
    """Returns arguments to save `LazyArray`s in chunks, which take little memory besides the array itself."""
    ocp.type_handlers.register_type_handler(LazyArray, LazyArrayHandler(deepcopy_host_arrays=False), override=True)
    size = 2**25  # bytes of a chunk and of a file
    parts = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=size), tree)
    return ocp.args.PyTreeSave(tree, parts, ocdbt_target_data_file_size=size)


def silence_orbax() -> None:
    """Silences Orbax's log, and the page of text for each array that it drops when one fails."""
    absl.logging.set_verbosity(absl.logging.FATAL)
    dropped = re.compile("<coroutine|loop is closed").search
    sys.unraisablehook = lambda it: dropped(f"{it.object} {it.exc_value}") or sys.__unraisablehook__(it)


class Checkpoints:
    """The checkpoints in a directory; only for reading if `config` is None."""

    def __init__(self, directory: str | epath.Path, config: Config | None):
        silence_orbax()
        self.directory, self.config = absolute(directory), config
        if config is None:
            return
        if odd := {"[", "\\"} & {*str(self.directory)}:  # Orbax would lose arrays there, as it takes paths for patterns
            raise InputError(f"{self.directory}: has {odd.pop()}, which Orbax cannot write to: give another path")
        self.versions = {x.name: x.version for x in importlib.metadata.distributions() if x.name}
        self.versions["git"] = subprocess.getoutput("git describe --always --dirty --exclude='*' 2>/dev/null")
        keep = {"max_to_keep": config.keep_last, "keep_period": config.keep_every or None}
        # a run that is killed while saving leaves half a checkpoint
        options = ocp.CheckpointManagerOptions(**keep, cleanup_tmp_directories=True)
        point("Checkpoints.options", options, config)
        self.manager = ocp.CheckpointManager(self.directory, options=options)
        with point("Checkpoints.tokenizer", config):
            if jax.process_index() == 0:
                keep_tokenizer(config.tokenizer, self.directory, config.allow_other_data)

    def save(self, step: int, trees: dict[str, Any], data: Batches | None = None) -> None:
        """Copies the arrays of `trees` from their devices and returns; they are written in the background.

        Raises InputError if one is not finite, OSError if these or the previous ones cannot be written.
        """
        point("Checkpoints.before_save")
        fields = {"architecture": ARCHITECTURE, "versions": self.versions} | dataclasses.asdict(self.config)
        items = {"config": save_json(fields)}
        for item, tree in trees.items():
            arrays = named_arrays(tree)
            point("Checkpoints.save", arrays, step)
            sums, finite = checksums(arrays)
            if not finite:
                raise InputError(f"step {step} is not saved: its {item} is not finite: lower --learning-rate")
            save_as = save_lazily if any(isinstance(x, LazyArray) for x in arrays.values()) else ocp.args.StandardSave
            items[item] = save_as({"arrays": arrays, "checksums": sums})
        if data is not None:
            with point("Checkpoints.data", data, items):
                items["data"] = save_json(data.get_state())
        with point("Checkpoints.write", step, items):
            self.manager.save(step, args=ocp.args.Composite(**items))

    def close(self) -> None:
        """Waits until all is written; raises OSError if it cannot be."""
        with point("Checkpoints.close"):
            self.manager.close()

    def steps(self) -> set[int]:
        """Returns the steps that have a checkpoint."""
        names = ocp.path.step.standard_name_format()
        return {found.step for found in names.find_all(self.directory)} if self.directory.is_dir() else set()

    def read(self, step: int, item: str, arguments: ocp.args.CheckpointArgs) -> Any:
        """Reads an item with its own handler, which unlike Orbax's manager waits for no other process."""
        handler = ocp.checkpoint_args.get_registered_handler_cls(arguments)()
        return handler.restore(self.directory / str(step) / item, args=arguments)

    def read_json(self, step: int, item: str) -> dict[str, Any]:
        fields = dict(self.read(step, item, ocp.args.JsonRestore()))
        if fields.pop("checksum", None) not in (None, json_checksum(fields)):
            raise ValueError(f"{item} is not what was saved, by its checksum")
        return fields

    def read_config(self, step: int) -> Config:
        fields = self.read_json(step, "config")
        there, _ = fields.pop("architecture", ARCHITECTURE), fields.pop("versions", None)
        known = {f.name: f.default for f in dataclasses.fields(Config)}
        needed = {name for name, default in known.items() if default is dataclasses.MISSING}
        wrong = sorted(needed - fields.keys() | fields.keys() - known)
        if there != ARCHITECTURE or wrong:
            difference = f"{there} there, {ARCHITECTURE} here; settings of only one: {wrong}"
            raise InputError(f"{self.directory / str(step)} is of another architecture: {difference}")
        recorded = {name: fields.pop(name, default) for name, default in command_line_only().items()}
        for name, flag in ("data", "--data"), ("eval_data", "--eval-data"):
            if recorded[name] and self.config and not getattr(self.config, name):
                raise InputError(f"{self.directory}: began with {flag} {recorded[name]!r}: give it, none is taken")
        tokenizer = "bytes" if recorded["tokenizer"] == "bytes" else kept_tokenizer(self.directory)
        point("checkpoints.config", fields)
        config = Config(**fields, tokenizer=tokenizer)
        check_config(config, f"{self.directory / str(step)}: ")
        return config

    def read_arrays(self, step: int, item: str, tree: Any) -> tuple[dict[str, Array], Array]:
        """Returns an item's arrays by name, sharded as the abstract tree, or lazy; and saved checksums."""
        wanted, folder = named_arrays(tree), self.directory / str(step)
        saved = ocp.StandardCheckpointHandler().metadata(folder / item).tree["arrays"]
        point("Checkpoints.wanted", wanted, step, saved)
        for name in wanted | saved:
            here, there = (f"{x[name].dtype} {[*x[name].shape]}" if name in x else "absent" for x in (wanted, saved))
            if here != there:
                settings = changes(self.read_config(step), self.config) if self.config else ""
                difference = f"{name} is {there} there, {here} here; settings there -> here: {settings or 'the same'}"
                raise InputError(f"{folder} is of another model: {difference}: fix these, or give another directory")
        if all(x.sharding for x in wanted.values()):
            sums = np.zeros(len(wanted), np.uint32)
            found = self.read(step, item, ocp.args.StandardRestore({"arrays": wanted, "checksums": sums}))
            return {name: found["arrays"][name] for name in wanted}, found["checksums"]

        def read(part):
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), part)
            arguments = ocp.args.PyTreeRestore(part, restore_args=as_numpy, partial_restore=True)
            with point("Checkpoints.read_part", step, item, arguments):
                found = self.read(step, item, arguments)
            return found

        def read_array(name: str) -> np.ndarray:
            return read({"arrays": {name: wanted[name]}})["arrays"][name]

        return {name: LazyArray(x, read_array, name) for name, x in wanted.items()}, read({"checksums": 0})["checksums"]

    def read_step(
        self, step: int, targets: Callable[[Config], dict[str, Any]], data: Batches | None
    ) -> tuple[Config, dict[str, Any] | None, dict[str, tuple]]:
        """Returns a step's Config, the state of data, and by item the abstract tree, arrays and saved checksums."""
        if odd := [x for x in Path(self.directory / str(step)).rglob("*") if not x.is_file() and not x.is_dir()]:
            raise ValueError(f"{odd[0]} is not a file")  # a pipe never ends
        config = self.read_config(step)
        trees = {item: tree for item, tree in targets(config).items() if step > 0 or item == "model"}
        with point("Checkpoints.read_data", self, step, config, data):
            place = self.read_json(step, "data") if data and step > 0 else None
        return config, place, {item: (tree, *self.read_arrays(step, item, tree)) for item, tree in trees.items()}

    def fill(self, step: int, items: dict[str, tuple]) -> dict[str, Any]:
        """Returns the trees of `read_step` with arrays; raises ValueError if these are damaged or not finite."""
        trees = {}
        for item, (tree, arrays, sums) in items.items():
            again, finite = checksums(arrays)
            with point("Checkpoints.compare", sums, again, item):
                if not np.array_equal(sums, again):
                    raise ValueError(f"{item} is not what was saved, by its checksums")
            if not finite:
                raise ValueError(f"{item} is not finite: it has infinities or NaNs")
            point("Checkpoints.read", arrays, tree, step)
            trees[item] = jax.tree.unflatten(jax.tree.structure(tree), arrays.values())
        return trees

    def restore(
        self, targets: Callable[[Config], dict[str, Any]], data: Batches | None = None, only: int | None = None
    ) -> tuple[int, Config, dict[str, Any]] | None:
        """Returns the newest checkpoint's step, Config and trees, sharded as `targets(Config)`, or None.

        `only` reads that step, or raises InputError if it has none. Sets `data` to where it was. Step 0, imported
        weights, has only a model.
        """
        with point("Checkpoints.steps"):
            steps = self.steps()
            newest = multihost_utils.process_allgather(np.int32(min(max(steps, default=-1), 2**31 - 1)))
            if newest.min() < newest.max():
                raise InputError(
                    f"{self.directory}: processes see the newest steps {newest}: wait until all see the same"
                )
        if only is not None:
            if only not in steps:
                there = ", ".join(map(str, sorted(steps))) or "none"
                raise InputError(f"{self.directory}: there is no checkpoint of step {only}; there are: {there}")
            steps = {only}
        if not steps:
            return None
        with point("Checkpoints.newest", steps, targets, data):
            step = max(steps)
            try:
                config, place, items = self.read_step(step, targets, data)
                trees = self.fill(step, items)
            except InputError:
                raise
            except Exception as error:  # Orbax raises plain Exceptions too
                reason = " ".join(str(error).partition(" [")[0].split())  # TensorStore adds a specification in brackets
                problem = f"{self.directory / str(step)} cannot be read: {reason}"
                raise InputError(f"{problem}: mend it, or remove it to go on from the one before") from None
        if place:
            data.set_state(place, step)
        point("Checkpoints.found")
        return step, config, trees


def load_checkpoint(directory: str, mesh: Mesh | None, step: int | None = None) -> tuple[Config, Decoder]:
    """Loads Config and newest good parameters from a directory, sharded over the mesh; without one, lazily.

    Prints the step, and warns of a newer one that is not whole. `step` loads that one, not the newest.
    """
    run = Checkpoints(directory, None)
    found = run.restore(lambda config: {"model": abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)}, only=step)
    if found is None:
        raise InputError(f"{directory}: there is no checkpoint: give the --checkpoint-dir of a training run")
    newest, config, trees = found
    print(f"step {newest} of {directory}", file=sys.stderr)
    halves = [re.match("([0-9]+)[.]orbax-checkpoint-tmp", path.name) for path in run.directory.iterdir()]
    if step is None and (newer := max((int(half[1]) for half in halves if half), default=0)) > newest:
        print(f"warning: step {newer} is there by half: being saved, or cut off by the end of its run", file=sys.stderr)
    point("load_checkpoint.found", config, mesh, model=trees["model"])
    return config, trees["model"]


def newest_config(directory: str) -> Config | None:
    """Returns the Config of the newest good checkpoint in a directory, or None."""
    found = Checkpoints(directory, None).restore(lambda _: {}) if directory else None
    return found and found[1]
