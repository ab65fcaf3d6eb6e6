"""Files that are neither text nor JSONL are refused."""

from generator.language import excludes, proceed, splice
from generator.language.roles import InputError

excludes("columns")

OTHER_FORMATS = *(".json", ".csv", ".tsv", ".parquet", ".arrow", ".array_record"), *(".gz", ".bz2", ".xz", ".zst")


@splice("open_by_format.format")
def _(path, suffix):
    if suffix.partition("-")[0] in OTHER_FORMATS:  # .array_record-00000-of-00010 is a shard
        raise InputError(f"{path}: is neither text nor JSONL: convert it, or build the package with its part formats")
    proceed()
