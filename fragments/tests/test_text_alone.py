"""Documents of a package without other formats: these are refused, never read as text."""

import pytest

from generator.language import requires
from generator.language.roles import InputError, open_documents

requires("text_alone")


@pytest.mark.parametrize("suffix", [".json", ".csv", ".TSV", ".jsonl.gz", ".txt.zst", ".array_record-00000-of-00002"])
def test_other_formats_are_refused(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    path.write_text('{"text": "a"}\n')
    with pytest.raises(InputError, match=rf"{path.name}: is neither text nor JSONL: convert it, or build the package"):
        open_documents(str(path))
