"""Arrays of checkpoints that are read when they are needed."""

from pathlib import Path

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    SMALL,
    InputError,
    LazyArray,
    checksums,
    checksums_on_host,
    load_checkpoint,
    named_arrays,
    save_two,
    state_for,
)

requires("lazy_arrays")

# Orbax drops coroutines when a read fails; Python reports them whenever it collects them
dropped = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [dropped, pytest.mark.usefixtures("unraisable_hook")]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(bytes(path.stat().st_size))])
def test_files_that_change_while_a_model_is_read_are_named(change, tmp_path):
    """Arrays are read when an export writes them, long after the checkpoint was found to be good."""
    directory = save_two(tmp_path / "run")
    _, model = load_checkpoint(str(directory), None)
    array = jax.tree.leaves(model)[0]
    assert np.asarray(array).shape == array.shape
    change(max((directory / "7/model").rglob("*"), key=lambda path: path.stat().st_size * path.is_file()))
    with pytest.raises(InputError, match=f"{directory}/7 is damaged: "):
        for x in jax.tree.leaves(model):
            np.asarray(x)


def test_checksums_are_by_name_whoever_computes_them():
    """On devices, and of arrays that are read later, in any order."""
    arrays = named_arrays(state_for(SMALL).model)
    read = {name: LazyArray(x, lambda name: np.asarray(arrays[name]), name) for name, x in reversed(arrays.items())}
    assert [*map(int, checksums_on_host(read)[0])] == [*map(int, checksums(arrays)[0])]
