"""Tokenizer files, copied into run directories and exported folders, so that both can be moved."""

from pathlib import Path

from etils import epath

from generator.language.roles import InputError

CHAT_TEMPLATES = "chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja"
VOCABULARIES = "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json"
TOKENIZER_FILES = "tokenizer_config.json", "special_tokens_map.json", *VOCABULARIES, *CHAT_TEMPLATES
MODEL_FILES = "config.json", "generation_config.json"
LARGEST_FILE = 2**28  # bytes; the largest published tokenizer.json has less than 2**26


def copy_file(path: epath.Path, target: epath.Path) -> None:
    """Copies one file. A link may point within its folder, or within its repository in a cache of the Hub.

    Raises InputError for other links, for what is not a regular file and for a file larger than LARGEST_FILE.
    """
    # `resolve` of epath does not follow links
    real, folder = (x if "://" in str(x) else epath.Path(Path(x).resolve()) for x in (path, path.parent))
    caches = (p.parent for p in folder.parents if p.name == "snapshots" and (p.parent / "blobs").is_dir())
    root = next(caches, folder)
    if root not in real.parents:
        raise InputError(f"{path}: is a link to {real}, outside of {root}: put the file itself there")
    if not real.is_file() or Path(real).is_fifo() or real.stat().length > LARGEST_FILE:
        raise InputError(f"{path}: is not a file of at most {LARGEST_FILE:,} bytes: remove it, or put one there")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(real.read_bytes())


def copy_tokenizer(tokenizer: str, directory: Path | epath.Path, model: str = "") -> None:
    """Copies a tokenizer.json and the files beside it that exist; MODEL_FILES are those beside `model`, if given."""
    for path, names in ((model or tokenizer, MODEL_FILES), (tokenizer, TOKENIZER_FILES)):
        folder = epath.Path(path).expanduser().parent
        for name in names if path != "bytes" else ():
            for file in sorted(folder.glob(name)):
                copy_file(file, directory / file.relative_to(folder))
    if (path := epath.Path(tokenizer).expanduser()).exists():
        copy_file(path, directory / "tokenizer.json")
