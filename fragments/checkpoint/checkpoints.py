"""Checkpoints written in the background by Orbax."""

import dataclasses
import importlib.metadata
import json
import logging
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
    Config,
    Decoder,
    InputError,
    ModelConfig,
    NonNegativeInt,
    PositiveInt,
    absolute,
    abstract,
    check_config,
    check_writable,
    keep_tokenizer,
    kept_tokenizer,
    named_arrays,
    reading,
    writing,
)


class CheckpointConfig:
    """What is saved, where, and for how long."""

    checkpoint_dir: str = ""  # for checkpoints and metrics; a run resumes from it; "": a new runs/DATE-TIME
    keep_last: PositiveInt = 3  # newest checkpoints that are kept
    keep_every: NonNegativeInt = 0  # checkpoints at multiples of this many steps are kept for good; 0: none


@jax.jit
def checksums(arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Sums each array's bits modulo 2**32, [n] uint32 by sorted names, as Orbax misses changed bytes; is all finite?"""
    point("checksums.arrays", arrays)
    bits = [jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}") for _, x in sorted(arrays.items())]
    finite = [jnp.all(jnp.isfinite(x)) for x in arrays.values()]
    return jnp.stack([jnp.sum(x, dtype=jnp.uint32) for x in bits]), jnp.all(jnp.stack(finite))


def command_line_only() -> dict[str, Any]:
    """Returns defaults of the settings never taken from a checkpoint: text, such as paths, and consent."""
    names = {f.name for f in dataclasses.fields(ModelConfig)}  # whose text only names what is in this package
    point("command_line_only.names", names)
    fields = [f for f in dataclasses.fields(Config) if f.type is str or f.name.startswith("allow_")]
    return {f.name: f.default for f in fields if f.name not in names}


def changes(old: Config, new: Config) -> str:
    """Lists the fields that differ: `width 64 -> 32, steps 100 -> 200`."""
    pairs = ((name, a, getattr(new, name)) for name, a in vars(old).items() if name not in command_line_only())
    return ", ".join(f"{name} {a} -> {b}" for name, a, b in pairs if a != b)


def with_checksum(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"checksum": zlib.crc32(json.dumps(fields, sort_keys=True).encode())}


class Checkpoints:
    """The checkpoints in a directory; only for reading if `config` is None."""

    def __init__(self, directory: str | epath.Path, config: Config | None):
        self.directory = absolute(directory)
        self.config = config
        point("Checkpoints.parameters", self)
        with point("Checkpoints.writable", config):
            if config is not None:
                check_writable(self.directory)  # now, and not after hours
        # Orbax logs a lot, and drops a page of text for each array when one fails
        absl.logging.set_verbosity(absl.logging.FATAL)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        dropped = re.compile("<coroutine|loop is closed").search
        sys.unraisablehook = lambda it: dropped(f"{it.object} {it.exc_value}") or sys.__unraisablehook__(it)

    def open(self) -> "Checkpoints":
        """Prepares the directory for `save`: makes it, keeps the tokenizer there, and removes half a checkpoint."""
        if odd := {"[", "\\"} & {*str(self.directory)}:  # Orbax would lose arrays there, as it takes paths for patterns
            raise InputError(f"{self.directory}: has {min(odd)}, which Orbax cannot write to: give another path")
        self.versions = {x.name: x.version for x in importlib.metadata.distributions() if x.name}
        describe = "git describe --always --dirty --exclude='*' 2>/dev/null"
        git = subprocess.run(describe, shell=True, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
        self.versions["git"] = git.stdout.strip()
        keep = {"max_to_keep": self.config.keep_last, "keep_period": self.config.keep_every or None}
        options = ocp.CheckpointManagerOptions(**keep, cleanup_tmp_directories=True)
        point("Checkpoints.options", options, config=self.config)
        self.manager = ocp.CheckpointManager(self.directory, options=options)
        with point("Checkpoints.tokenizer"):
            if jax.process_index() == 0:
                keep_tokenizer(self.config.tokenizer, self.directory, self.config.allow_other_data)
        return self

    def save(self, step: int, trees: dict[str, Any], data: Batches | None = None) -> None:
        """Copies the arrays of `trees` from their devices and returns; they are written in the background.

        Raises InputError if one is not finite, OSError if these or the previous ones cannot be written.
        """
        point("Checkpoints.before_save")
        fields = {"architecture": ARCHITECTURE, "versions": self.versions} | dataclasses.asdict(self.config)
        items = {"config": ocp.args.JsonSave(with_checksum(fields))}
        for item, tree in trees.items():
            arrays = named_arrays(tree)
            point("Checkpoints.save", arrays, step)
            with point("Checkpoints.checksums", arrays):
                sums, finite = checksums(arrays)
            if not finite:
                raise InputError(f"step {step} is not saved: its {item} is not finite: lower --learning-rate")
            with point("Checkpoints.save_item", arrays, sums, items, item):
                items[item] = ocp.args.StandardSave({"arrays": arrays, "checksums": sums})
        if data is not None:
            with point("Checkpoints.data", data, items):
                items["data"] = ocp.args.JsonSave(with_checksum(data.get_state()))
        with point("Checkpoints.write", step, items):
            with writing(self.directory):
                is_saved = self.manager.save(step, args=ocp.args.Composite(**items))
            if not is_saved:
                raise InputError(f"step {step} is not saved: {self.directory} has newer ones: give each run its own")

    def close(self) -> None:
        """Waits until all is written; raises OSError if it cannot be."""
        with point("Checkpoints.close"):
            with writing(self.directory):
                self.manager.close()

    def steps(self) -> set[int]:
        """Returns the steps that have a checkpoint."""
        return {checkpoint.step for checkpoint in ocp.path.step.standard_name_format().find_all(self.directory)}

    def read(self, step: int, item: str, arguments: ocp.args.CheckpointArgs) -> Any:
        """Reads an item with its own handler, which unlike Orbax's manager waits for no other process."""
        handler = ocp.checkpoint_args.get_registered_handler_cls(arguments)()
        return handler.restore(self.directory / str(step) / item, args=arguments)

    def read_json(self, step: int, item: str) -> dict[str, Any]:
        saved = self.read(step, item, ocp.args.JsonRestore())
        fields = {name: value for name, value in saved.items() if name != "checksum"}
        if saved not in (fields, with_checksum(fields)):
            raise ValueError(f"{item} is not what was saved, by its checksum")
        return fields

    def read_config(self, step: int) -> Config:
        fields = self.read_json(step, "config")
        not_taken = command_line_only() | {"architecture": ARCHITECTURE, "versions": {}}
        recorded = {name: fields.pop(name, default) for name, default in not_taken.items()}
        known = {f.name: f.default for f in dataclasses.fields(Config)}
        needed = {name for name, default in known.items() if default is dataclasses.MISSING}
        wrong = sorted(needed - fields.keys() | fields.keys() - known)
        if (there := recorded["architecture"]) != ARCHITECTURE or wrong:
            difference = f"{there} there, {ARCHITECTURE} here; settings of only one: {wrong}: use its own package"
            raise InputError(f"{self.directory / str(step)} is of another architecture or other parts: {difference}")
        for name, flag in ("data", "--data"), ("eval_data", "--eval-data"):
            if recorded[name] and self.config and not getattr(self.config, name):
                raise InputError(f"{self.directory}: began with {flag} {recorded[name]!r}: give it, none is taken")
        tokenizer = "bytes" if recorded["tokenizer"] == "bytes" else kept_tokenizer(self.directory)
        point("checkpoints.config", fields)
        config = Config(**fields, tokenizer=tokenizer)
        check_config(config, f"{self.directory / str(step)}: ")
        return config

    def read_arrays(self, step: int, item: str, tree: Any) -> tuple[dict[str, Array], Array]:
        """Returns an item's arrays, by name and sharded as the abstract tree, and their saved checksums."""
        target = named_arrays(tree)
        folder = self.directory / str(step)
        saved = ocp.StandardCheckpointHandler().metadata(folder / item).tree["arrays"]
        point("Checkpoints.target", target, step, folder, saved)
        for name in target | saved:
            here, there = (f"{x[name].dtype} {[*x[name].shape]}" if name in x else "absent" for x in (target, saved))
            if here != there:
                settings = changes(self.read_config(step), self.config) if self.config else ""
                difference = f"{name} is {there} there, {here} here; settings there -> here: {settings or 'the same'}"
                raise InputError(f"{folder} is of another model: {difference}: change these, the package or directory")
        with point("Checkpoints.read_item", self, step, item, target):
            sums = np.zeros(len(target), np.uint32)
            restored = self.read(step, item, ocp.args.StandardRestore({"arrays": target, "checksums": sums}))
            arrays = {name: restored["arrays"][name] for name in target}
            sums = restored["checksums"]
        return arrays, sums

    def read_tree(self, step: int, item: str, tree: Any) -> Any:
        """Returns the abstract tree with an item's arrays; raises ValueError if these are damaged or not finite."""
        with point("Checkpoints.read_arrays", step, item, tree):
            arrays, saved_sums = self.read_arrays(step, item, tree)
        with point("Checkpoints.checksums_read", arrays):
            sums, finite = checksums(arrays)
        with point("Checkpoints.compare", sums, saved_sums, item):
            if not np.array_equal(sums, saved_sums):
                raise ValueError(f"{item} is not what was saved, by its checksums")
        if not finite:
            raise ValueError(f"{item} is not finite: it has infinities or NaNs")
        point("Checkpoints.read", arrays, tree, step)
        return jax.tree.unflatten(jax.tree.structure(tree), arrays.values())

    def read_step(self, step: int, data: Batches | None) -> tuple[Config, dict[str, Any] | None]:
        """Returns the Config of a step, and the state of its data."""
        if odd := [x for x in Path(self.directory / str(step)).rglob("*") if not x.is_file() and not x.is_dir()]:
            raise ValueError(f"{odd[0]} is not a file")  # a pipe never ends
        config = self.read_config(step)
        with point("Checkpoints.read_data", self, step, config, data):
            place = self.read_json(step, "data") if data is not None and step > 0 else None
        return config, place

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
        if only not in (None, *steps):
            raise InputError(f"{self.directory}: there is no checkpoint of step {only}; there are: {sorted(steps)}")
        steps = steps if only is None else {only}
        if not steps:
            return None
        with point("Checkpoints.newest", steps, targets, data):
            step = max(steps)
            with reading(self.directory / str(step)):
                config, place = self.read_step(step, data)
            abstract_trees = {item: tree for item, tree in targets(config).items() if step or item == "model"}
            with reading(self.directory / str(step)):
                trees = {item: self.read_tree(step, item, tree) for item, tree in abstract_trees.items()}
        if place is not None:
            data.set_state(place, step)
        point("Checkpoints.found")
        return step, config, trees


def load_checkpoint(directory: str, mesh: Mesh | None, step: int | None = None) -> tuple[Config, Decoder]:
    """Loads Config and the newest parameters from a directory, sharded over the mesh.

    Prints the step, and warns of a newer one that is not whole. `step` loads that one, not the newest.
    """
    run = Checkpoints(directory, None)
    point("load_checkpoint.run", run, mesh)
    restored = run.restore(lambda config: {"model": abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)}, only=step)
    if restored is None:
        raise InputError(f"{directory}: there is no checkpoint: give the --checkpoint-dir of a training run")
    newest, config, trees = restored
    print(f"step {newest} of {directory}", file=sys.stderr)
    halves = [re.match("([0-9]+)[.]orbax-checkpoint-tmp", path.name) for path in run.directory.iterdir()]
    if step is None and (newer := max((int(half[1]) for half in halves if half), default=0)) > newest:
        print(f"warning: step {newer} is there by half: being saved, or cut off by the end of its run", file=sys.stderr)
    point("load_checkpoint.found", config, mesh, model=trees["model"])
    return config, trees["model"]


def newest_config(directory: str) -> Config | None:
    """Returns the Config of the newest checkpoint in a directory, or None."""
    restored = Checkpoints(directory, None).restore(lambda _: {}) if directory else None
    return restored and restored[1]
