"""Command line: import and export of Hugging Face checkpoints."""

import contextlib
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import Positional

from generator.language import point
from generator.language.roles import InputError, ending_with_messages


def import_hf(hf_dir: Positional[str], directory: Positional[str]) -> None:
    """Imports a Hugging Face directory as the first checkpoint of a new directory, for train or generate."""
    from generator.language.roles import Checkpoints, atomic_directory, load_tokenizer, open_hf_model

    config, model = open_hf_model(hf_dir)
    point("import_hf.opened", config, model)
    if has_tokenizer := Path(config.tokenizer).exists():
        load_tokenizer(config.tokenizer)  # one that is damaged is refused before anything is written
    with atomic_directory(directory) as half:
        with contextlib.closing(Checkpoints(str(half), config).open()) as checkpoints:
            checkpoints.save(0, {"model": model})
    tokenizer = "with its tokenizer" if has_tokenizer else f"without a tokenizer, as {hf_dir} has no tokenizer.json"
    print(f"{directory}: the weights of {hf_dir} as step 0, {tokenizer}")


def export_hf(
    directory: Positional[str],
    hf_dir: Positional[str],
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    step: int | None = None,
    tokenizer: str = "",
) -> None:
    """Writes a checkpoint of a directory as a new Hugging Face directory.

    Args:
        dtype: Of the tensors; by default that of the imported tensors, or float32.
        step: Of the checkpoint; by default the newest.
        tokenizer: Path of a tokenizer.json; by default the one kept in the directory.
    """
    from generator.language.roles import absolute, atomic_directory, load_checkpoint, save_hf

    if tokenizer and not absolute(tokenizer).is_file():
        raise InputError(f"--tokenizer {tokenizer}: there is no such file: give the path of a tokenizer.json")
    config, model = load_checkpoint(directory, None, step)
    dtype = dtype or config.export_dtype
    with atomic_directory(hf_dir) as half:
        with point("export_hf.save", config, model, half, dtype, tokenizer):
            save_hf(config, model, half, dtype, tokenizer=tokenizer)
    has_tokenizer = config.tokenizer == "bytes" or (absolute(hf_dir) / "tokenizer.json").exists()
    lacks = f"without a tokenizer, as {directory} keeps none: give --tokenizer"
    print(f"{hf_dir}: in {dtype}, {'with its tokenizer' if has_tokenizer else lacks}")


@ending_with_messages()
def main() -> None:
    commands = {"import": import_hf, "export": export_hf}
    point("checkpoint.commands", commands)
    tyro.extras.subcommand_cli_from_dict(commands, prog=f"python -m {__package__}.checkpoint")


if __name__ == "__main__":
    main()
