"""Weights and paths of several sources, as they are given."""

import pytest

from generator.language import requires
from generator.language.roles import InputError, split_mixture

requires("data/mixture")


@pytest.mark.parametrize("data", ["0:A,1:B", "-1:A,1:B", "nan:A,1:B", "inf:A,1:B", "1:,1:B", "1e-9:A,1:B"])
def test_weights_that_cannot_be_used_are_named(data):
    with pytest.raises(InputError, match=r"must be WEIGHT:PATH,WEIGHT:PATH, weights from"):
        split_mixture(data)


@pytest.mark.parametrize(
    ("data", "sources"),
    [
        ("0.7:A,0.3:B", [(0.7, "A"), (0.3, "B")]),
        ("7:/a,b/c:d,3:B", [(7.0, "/a,b/c:d"), (3.0, "B")]),
        ("a,b.txt", [(1.0, "a,b.txt")]),
        ("dir:x/*.txt", [(1.0, "dir:x/*.txt")]),
        ("gs://bucket/a", [(1.0, "gs://bucket/a")]),
        ("", [(1.0, "")]),
    ],
)
def test_weights_and_paths(data, sources):
    assert split_mixture(data) == sources
