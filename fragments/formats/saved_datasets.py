"""Folders that `save_to_disk` of datasets wrote: which of their files are rows."""

import json
from pathlib import Path

from generator.language import splice
from generator.language.roles import InputError


def files_of_rows(files: list[Path]) -> list[Path]:
    """Drops files that `save_to_disk` of datasets writes beside the rows, and leftovers of other datasets."""
    descriptions, rows = [], {}  # folder -> names of its files
    for file in (file for file in files if file.name in ("dataset_dict.json", "state.json")):
        try:
            description = json.loads(file.read_text())
            if splits := description.get("splits"):
                descriptions.append(file)
                if len(splits) > 1:
                    raise InputError(
                        f"data {file.parent}: has the splits {', '.join(splits)}: give the folder of one of them"
                    )
            if parts := description.get("_data_files"):
                rows[file.parent] = {part["filename"] for part in parts}
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # another program's: read like any other file
    return [file for file in files if file not in descriptions and file.name in rows.get(file.parent, {file.name})]


@splice("find_files.found")
def _(files):
    files = files_of_rows(files)
