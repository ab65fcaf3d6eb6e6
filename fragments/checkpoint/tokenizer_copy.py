"""A copy of the tokenizer in a run's directory, so that the directory can be moved."""

import time

from etils import epath

from generator.language.roles import InputError, absolute, copy_tokenizer


def kept_tokenizer(directory: str | epath.Path) -> str:
    """Returns the path of tokenizer.json in a run's directory, whether it exists or not."""
    return str(absolute(directory) / "tokenizer" / "tokenizer.json")


def keep_tokenizer(tokenizer: str, directory: epath.Path, replace: bool = False) -> None:
    """Copies a tokenizer into a run's directory. Another one there is renamed with `replace`, else an InputError."""
    kept = epath.Path(kept_tokenizer(directory))
    source = epath.Path(tokenizer).expanduser()
    if tokenizer == "bytes" or absolute(source) == kept or (kept.exists() and kept.read_bytes() == source.read_bytes()):
        return
    if kept.exists() and not replace:
        raise InputError(f"--tokenizer {tokenizer}: this run has {kept}: give a new directory, or --allow-other-data")
    half = kept.parent.with_name("tokenizer.half")
    half.rmtree(missing_ok=True)  # left by a program that was killed
    half.mkdir(parents=True)
    copy_tokenizer(tokenizer, half, str(kept) if kept.parent.exists() else "")
    if kept.parent.exists():
        kept.parent.rename(kept.parent.with_name(f"tokenizer-{time.time_ns()}"))
    half.rename(kept.parent)
