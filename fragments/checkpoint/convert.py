"""Command line: import and export of Hugging Face checkpoints."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import Positional

from generator.roles import (
    Checkpoints,
    InputError,
    copy_tokenizer,
    ending_with_messages,
    load_checkpoint,
    load_hf,
    make_mesh,
    save_hf,
)


def import_hf(hf_dir: Positional[str], directory: Positional[str]) -> None:
    """Makes a Hugging Face directory the first checkpoint of a new directory, for train to start from, or generate."""
    config, model = load_hf(hf_dir)
    copies = Path(directory).resolve() / "tokenizer"
    if copies.parent.exists():
        raise InputError(f"{directory}: is there already: give a new directory")
    copies.mkdir(parents=True)
    copy_tokenizer(config.tokenizer, copies)
    checkpoints = Checkpoints(directory, dataclasses.replace(config, tokenizer=str(copies / "tokenizer.json")))
    checkpoints.save(0, model)
    checkpoints.manager.close()


def export_hf(
    directory: Positional[str], hf_dir: Positional[str], dtype: Literal["float32", "bfloat16", "float16"] = "float32"
) -> None:
    """Writes the newest checkpoint of a directory as a new Hugging Face directory, its tensors in `dtype`."""
    save_hf(*load_checkpoint(directory, make_mesh()), hf_dir, dtype)


@ending_with_messages()
def main() -> None:
    tyro.extras.subcommand_cli_from_dict({"import": import_hf, "export": export_hf})


if __name__ == "__main__":
    main()
