"""Command line: import and export of Hugging Face checkpoints."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
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
    ending_with_messages,
    load_checkpoint,
    local_folder,
    open_hf_model,
    save_hf,
    together,
    upload,
)


@contextlib.contextmanager
def beside(directory: str) -> Iterator[epath.Path]:
    """A directory to write to, which gets the name of a new one when all is written, or goes."""
    whole = absolute(directory)
    if whole.exists():
        raise InputError(f"{directory}: already exists: give a new directory")
    half = whole.with_name(f"{whole.name}.half")
    half.rmtree(missing_ok=True)  # of a program that was killed
    try:
        yield half
        half.rename(whole)
    finally:  # where a write fails, others of Orbax go on for a moment
        together(lambda: half.rmtree(missing_ok=True), WAITS)


def import_hf(hf_dir: Positional[str], directory: Positional[str]) -> None:
    """Makes a Hugging Face directory the first checkpoint of a new directory, for train to start from, or generate."""
    config, model = open_hf_model(hf_dir)
    with beside(directory) as half:
        checkpoints = Checkpoints(str(half), config)
        checkpoints.save(0, model)
        checkpoints.close()
    if not Path(config.tokenizer).exists():
        print(f"{directory}: without a tokenizer, as {hf_dir} has no tokenizer.json: serve takes token ids")


def export_hf(
    directory: Positional[str],
    hf_dir: Positional[str],
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    step: int | None = None,
    tokenizer: str = "",
) -> None:
    """Writes a checkpoint of a directory as a new Hugging Face directory.

    Args:
        dtype: Of the tensors; else that of the tensors that were imported, or float32.
        step: Of the checkpoint; else the newest one.
        tokenizer: Path of a tokenizer.json; else the one that is kept in the directory.
    """
    if tokenizer and not absolute(tokenizer).is_file():
        raise InputError(f"--tokenizer {tokenizer}: there is no such file: give the path of a tokenizer.json")
    config, model = load_checkpoint(directory, None, step)
    dtype = dtype or config.export_dtype
    with beside(hf_dir) as half:
        local = local_folder(half)
        try:
            save_hf(config, model, local, dtype, tokenizer=tokenizer)
        except SafetensorError as error:  # what its writer makes of an OSError
            raise OSError(f"{hf_dir}: {error}") from None
        upload(local, half)
        has_tokenizer = (local / "tokenizer.json").exists()
    files = (
        "with its tokenizer" if has_tokenizer else f"without a tokenizer, as {directory} keeps none: give --tokenizer"
    )
    print(f"{hf_dir}: in {dtype}, {'of bytes' if config.tokenizer == 'bytes' else files}")


@ending_with_messages()
def main() -> None:
    tyro.extras.subcommand_cli_from_dict({"import": import_hf, "export": export_hf})


if __name__ == "__main__":
    main()
