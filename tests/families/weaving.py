"""Packages that tests of families weave, and batches for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from generator.checkpoint.fit import fit
from generator.checkpoint.loading import load_package
from generator.disk.lock import InputDigests, encode_package
from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave

LIBRARY = Library.read([Path(__file__).resolve().parents[2]])
PRINTS = InputDigests(())
INPUTS = "tokens", "targets", "positions", "segment_ids"


def with_architecture(name: str, text: str) -> Library:
    """The library with one more architecture."""
    return Library({**LIBRARY.files, f"templates/architectures/{name}.toml": text})


def fitted(family: str, name: str, checkpoint: Path) -> Library:
    """The library with the architecture `name` that `gen new` makes for a checkpoint."""
    hf = json.loads((checkpoint / "config.json").read_text())
    # the same title for all, for what is woven once
    return with_architecture(name, fit(LIBRARY, family, "cpu", hf, "fitted", "config.json"))


def write(package: Package, folder: Path) -> Path:
    """Writes a package without its tests below a folder, with the lock and map that `gen coverage` reads."""
    for path, content in encode_package(package, PRINTS).items():
        if not path.startswith("tests/"):
            (folder / package.name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / package.name / path).write_bytes(content)
    return folder / package.name


def in_double(folder: Path) -> Path:
    """A written package, which computes in float64 from now on."""
    for file in folder.rglob("*.py"):
        file.write_text(file.read_text().replace("float32", "float64").replace("F32", "F64"))
    return folder


def woven(
    architecture: str, target: str, folder: Path, library: Library = LIBRARY, parts: Sequence[str] = ("all",)
) -> SimpleNamespace:
    """The modules of a package that is woven into a folder."""
    return load_package(write(weave(architecture, target, library, parts=parts), folder))


def variant(
    base: str,
    fragments: Sequence[str],
    folder: Path,
    target: str = "cpu",
    without: Sequence[str] = (),
    parts: Sequence[str] = ("all",),
) -> SimpleNamespace:
    """The package of an architecture with more fragments, in place of some."""
    name = f"{base}_variant"
    lines = f'base = "{base}"', 'title = "Variant"', f"fragments = {[*fragments]}", f"without = {[*without]}"
    return woven(name, target, folder, with_architecture(name, "\n".join(lines)), parts)


def batch_of(tokens: np.ndarray, *documents: Sequence[int]) -> dict[str, np.ndarray]:
    """A batch of the tokens of each row and those that follow them.

    Args:
        documents: their lengths in each row, one after the other, and the rest is padding; given once, those of all
            rows; not given, a row is a document.
    """
    rows, length = tokens.shape[0], tokens.shape[1] - 1
    parts = [[*it, length - sum(it)] for it in documents or [[length]]] * (1 if len(documents) > 1 else rows)
    numbers = [np.repeat([*range(1, len(part)), 0], part) for part in parts]
    positions = [np.concatenate([np.arange(n) for n in part]) for part in parts]
    segment_ids = np.array(numbers, np.int32)
    batch = dict(zip(INPUTS, (tokens[:, :-1], tokens[:, 1:], np.array(positions, np.int32), segment_ids), strict=True))
    return batch | {"weights": (segment_ids > 0).astype(np.float32)}


def abstract_batch(rows: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of a batch."""
    batch = {name: jax.ShapeDtypeStruct((rows, length), jnp.int32) for name in INPUTS}
    return batch | {"weights": jax.ShapeDtypeStruct((rows, length), jnp.float32)}
