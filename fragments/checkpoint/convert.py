"""Command line: import and export of Hugging Face checkpoints."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Literal

import tyro
from etils import epath
from safetensors import SafetensorError
from tyro.conf import Positional

from generator.language.roles import (
    WAITS,
    Checkpoints,
    InputError,
    absolute,
    copy_tokenizer,
    ending_with_messages,
    load_checkpoint,
    local_folder,
    open_hf_model,
    save_hf,
    together,
    upload,
)


@contextlib.contextmanager
def beside(directory: str) -> Iterator[tuple[epath.Path, epath.Path]]:
    """A new directory, and one beside it to write to: it gets the other's name when all is written, or goes."""
    whole = absolute(directory)
    if whole.exists():
        raise InputError(f"{directory}: already exists: give a new directory")
    half = whole.with_name(f"{whole.name}.half")
    half.rmtree(missing_ok=True)  # of a program that was killed
    try:
        yield whole, half
        half.rename(whole)
    finally:  # where a write fails, others of Orbax go on for a moment
        together(lambda: half.rmtree(missing_ok=True), WAITS)


def import_hf(hf_dir: Positional[str], directory: Positional[str]) -> None:
    """Makes a Hugging Face directory the first checkpoint of a new directory, for train to start from, or generate."""
    config, model = open_hf_model(hf_dir)
    with beside(directory) as (whole, half):
        (half / "tokenizer").mkdir(parents=True)
        copy_tokenizer(config.tokenizer, half / "tokenizer")
        tokenizer = str(whole / "tokenizer" / "tokenizer.json")
        checkpoints = Checkpoints(str(half), dataclasses.replace(config, tokenizer=tokenizer))
        checkpoints.save(0, model)
        checkpoints.close()


def export_hf(
    directory: Positional[str], hf_dir: Positional[str], dtype: Literal["float32", "bfloat16", "float16"] = "float32"
) -> None:
    """Writes the newest checkpoint of a directory as a new Hugging Face directory, its tensors in `dtype`."""
    config, model = load_checkpoint(directory, None)
    with beside(hf_dir) as (_, half):
        local = local_folder(half)
        try:
            save_hf(config, model, local, dtype)
        except SafetensorError as error:  # what its writer makes of an OSError
            raise OSError(f"{hf_dir}: {error}") from None
        upload(local, half)


@ending_with_messages()
def main() -> None:
    tyro.extras.subcommand_cli_from_dict({"import": import_hf, "export": export_hf})


if __name__ == "__main__":
    main()
