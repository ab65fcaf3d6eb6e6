"""Files that are neither text nor JSONL are refused."""

import re

from generator.language import excludes, proceed, splice
from generator.language.roles import InputError

excludes("columns")


@splice("open_by_format.format")
def _(path):
    if re.match("(?i)[.](json|csv|tsv|parquet|arrow|array_record|gz|bz2|xz|zst)(-|$)", path.suffix):
        raise InputError(f"{path}: is neither text nor JSONL: convert it, or build the package with its part formats")
    proceed()
