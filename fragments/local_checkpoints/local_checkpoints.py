"""Checkpoints on disks of the machines, between those that all processes write together.

Source: Wang et al. 2023, SOSP, "GEMINI: Fast Failure Recovery in Distributed Training" (near and far copies).
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import secrets
import sys
from typing import Any

import jax
import numpy as np
from etils import epath
from jax import Array
from jax.experimental import multihost_utils
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from generator.language import proceed, requires, splice
from generator.language.roles import (
    WAITS,
    Batches,
    Checkpoints,
    Config,
    Damage,
    InputError,
    NonNegativeInt,
    absolute,
    agree,
    changes,
    checkpoint_items,
    checksums,
    named_arrays,
    on_all_processes,
)

requires("agreement")


class CheckpointConfig:
    local_checkpoint_dir: str = ""  # folder on a disk of each machine, for checkpoints between the others
    local_checkpoint_every: NonNegativeInt = 0  # steps between checkpoints there; 0: none


def gather_json(value: Any) -> list[Any]:
    """Returns the values of all processes."""
    text = json.dumps(value).encode()
    texts = multihost_utils.process_allgather(np.frombuffer(text.ljust(agree(len(text))), np.uint8))
    return [json.loads(bytes(x)) for x in texts.reshape(jax.process_count(), -1)]


def shapes(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: f"{x.dtype} {[*x.shape]}" for name, x in arrays.items()}


def name_run(file: epath.Path) -> None:
    """Writes a name for the run on process 0, unless it has one; a directory that is made anew gets another."""
    if jax.process_index() == 0 and not (file.exists() and file.read_text()):
        file.write_text(f"{file.parent.name}-{secrets.token_hex(4)}")


class LocalCheckpoints:
    """Checkpoints on local disks: each process saves the shards of its devices to a file, for the same mesh.

    The last one is kept until a newer one is complete in all processes.
    """

    def __init__(self, config: Config, directory: epath.Path):
        name_file = directory / "run"
        on_all_processes(lambda: name_run(name_file))
        place = hashlib.sha256(str(directory).encode()).hexdigest()[:8]  # differs for a copy of the directory
        run = absolute(config.local_checkpoint_dir) / f"{on_all_processes(name_file.read_text)}-{place}"
        self.config = config
        self.folder = run / str(jax.process_index())
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    def begin(self, step: int) -> None:
        """Begins after a step, saved here or not: removes other checkpoints, of which a process may lack its part."""
        self.written = concurrent.futures.Future()
        self.written.set_result(step)
        self.keep(step)

    def files(self) -> dict[int, epath.Path]:
        return {int(path.stem): path for path in self.folder.glob("*.safetensors") if path.stem.isdecimal()}

    def keep(self, step: int) -> None:
        for other in self.files().keys() - {step}:
            self.files()[other].unlink()

    def save(self, step: int, trees: dict[str, Any], data: Batches) -> None:
        """Copies the arrays of this process's devices and returns; they are written in the background."""
        arrays = named_arrays(trees)
        words = {"config": dataclasses.asdict(self.config), "data": data.get_state(), "arrays": shapes(arrays)}
        sums, finite = checksums(arrays)
        if not finite:
            return  # the next checkpoint of all processes is an error
        self.finish()
        parts = {f"{name} {part.index}": part.data for name, x in arrays.items() for part in x.addressable_shards}
        bits = {"sums": np.array(sums)} | {name: np.array(x).reshape(-1).view("uint8") for name, x in parts.items()}
        self.written = self.thread.submit(self.write, step, bits, {name: json.dumps(x) for name, x in words.items()})

    def finish(self) -> None:
        """Waits until the last one is written; warns if it is not, as the shared checkpoints remain."""
        try:
            self.keep(on_all_processes(self.written.result))
        except OSError as error:
            print(f"warning: a checkpoint on local disks fails: {error}", file=sys.stderr)

    def write(self, step: int, bits: dict[str, np.ndarray], words: dict[str, str]) -> int:
        half = self.folder / "half"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(bits, half, words)
        except (OSError, SafetensorError) as error:  # safetensors turns the one into the other
            raise OSError(f"{half}: {error}") from None
        half.rename(self.folder / f"{step}.safetensors")
        return step

    def read(self, step: int, tree: Any) -> tuple[Config, dict[str, Any], dict[str, Array], np.ndarray]:
        """Returns a step's Config, the state of this process's data, the arrays, and their checksums when saved."""
        try:
            with safe_open(self.files()[step], "numpy") as file:
                config, place, there = (json.loads(file.metadata()[name]) for name in ("config", "data", "arrays"))
                if there != shapes(named_arrays(tree)):
                    settings = changes(Config(**config), self.config)
                    raise InputError(
                        f"{self.files()[step]} is of another model: settings there -> here: {settings or 'the same'}: "
                        "fix these, or give another directory"
                    )

                def array(name: str, x: jax.ShapeDtypeStruct) -> Array:
                    def part(index: tuple[slice, ...]) -> np.ndarray:
                        shape = np.broadcast_to(False, x.shape)[index].shape
                        return file.get_tensor(f"{name} {index}").view(x.dtype).reshape(shape)

                    return jax.make_array_from_callback(x.shape, x.sharding, part)

                arrays = {name: array(name, x) for name, x in named_arrays(tree).items()}
                return Config(**config), place, arrays, file.get_tensor("sums")
        except (KeyError, OSError, SafetensorError) as error:
            raise Damage(f"is damaged, or of another mesh: {error}") from None

    def restore(self, tree: Any, data: Batches, checkpoints: Checkpoints) -> tuple[int, Config, Any] | None:
        """Returns step, Config and tree of the newest one that all processes have, if it is newer than the shared."""
        shared = agree(max(on_all_processes(checkpoints.steps, WAITS), default=-1))
        common = set.intersection(*map(set, gather_json([*self.files()])))
        for step in sorted((x for x in common if x > shared), reverse=True):
            try:
                config, place, arrays, sums = on_all_processes(lambda step=step: self.read(step, tree))
                place = {name: value for part in gather_json(place) for name, value in part.items()}
                again, finite = checksums(arrays)
                if agree(not finite or not np.array_equal(sums, again)):
                    raise Damage("is not what was saved")
            except Damage as error:
                print(f"warning: checkpoint {self.folder}/{step}.safetensors {error}", file=sys.stderr)
                continue
            data.set_state(place, step)
            print(f"step {step} is on the local disks, in {self.folder.parent}")
            return step, config, jax.tree.unflatten(jax.tree.structure(tree), arrays.values())
        return None


def is_local_due(step: int, config: CheckpointConfig) -> bool:
    return config.local_checkpoint_every > 0 and step % config.local_checkpoint_every == 0


@splice("train.settings")
def _(config):
    if bool(config.local_checkpoint_dir) != bool(config.local_checkpoint_every):
        raise InputError("--local-checkpoint-dir and --local-checkpoint-every: give both, or neither")


@splice("restore_or_create.restore")
def _(config, checkpoints, target, data, step, saved, items):
    local = LocalCheckpoints(config, checkpoints.directory) if config.local_checkpoint_dir else None
    checkpoints.on_local_disks = local
    if local and (restored := local.restore(target, data, checkpoints)):
        step, saved, items = restored
    else:
        proceed()
    if local:
        local.begin(step)


@splice("train.checkpoint_due")
def _(step, config, is_last, checkpoint_due):
    is_shared = is_last or step % config.checkpoint_every == 0
    checkpoint_due = is_shared or is_local_due(step, config)


@splice("train.save")
def _(checkpoints, step, state, data, is_shared):
    if is_shared:
        proceed()
    else:
        checkpoints.on_local_disks.save(step, checkpoint_items(state), data)


@splice("train.end")
def _(checkpoints):
    if checkpoints.on_local_disks:
        checkpoints.on_local_disks.finish()
