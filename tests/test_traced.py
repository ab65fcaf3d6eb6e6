"""Text that knows where it came from: what a model in plain lists says of it, it says too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.code.traced import Origin, Traced, line_starts

Model = list[tuple[str, Origin]]  # each character with its origin
texts = st.text(alphabet="ab\n\x0c\u2028", max_size=12)
origins = st.builds(Origin, st.sampled_from(["x", "y"]), st.integers(1, 9))


@st.composite
def pieces(draw) -> tuple[Traced, Model]:
    text, origin = draw(texts), draw(origins)
    if draw(st.booleans()):
        return Traced.insert(text, origin), [(character, origin) for character in text]
    lines = [text.count("\n", 0, offset) for offset in range(len(text))]
    return Traced.copy(text, *origin), [
        (c, Origin(origin.path, origin.line + n)) for c, n in zip(text, lines, strict=True)
    ]


@st.composite
def traced(draw) -> tuple[Traced, Model]:
    parts = draw(st.lists(pieces(), max_size=4))
    return Traced.join(part for part, _ in parts), [pair for _, model in parts for pair in model]


def model_of(text: Traced) -> Model:
    return [(character, text.origin_at(offset)) for offset, character in enumerate(text.text)]


common = settings(deadline=None, derandomize=True, max_examples=60)


class TestOrigins:
    """Every character keeps its origin through joining, slicing and cutting into lines."""

    @common
    @given(traced(), traced())
    def test_join(self, one, other):
        assert model_of(one[0] + other[0]) == one[1] + other[1]

    @common
    @given(traced(), st.integers(0, 50), st.integers(0, 50))
    def test_slice(self, pair, start, end):
        assert model_of(pair[0][start:end]) == pair[1][start:end]

    @common
    @given(traced())
    def test_lines(self, pair):
        lines = pair[0].lines()
        assert [model_of(line) for line in lines] == [
            pair[1][start:end]
            for start, end in zip(line_starts(pair[0].text), line_starts(pair[0].text)[1:], strict=False)
        ]
        assert all("\n" not in line.text[:-1] for line in lines)


class TestLines:
    """Only a newline ends a line, as in Python: in a string or a comment there may stand what else breaks lines."""

    def test_starts(self):
        assert line_starts("a\u2028b\x0c\x85\nc") == [0, 6, 7]
        assert line_starts("a\n") == [0, 2]
        assert line_starts("") == [0]


class TestPaths:
    TEXT = Traced.copy("one\ntwo\n", "p", 5)

    def test_in_order_of_appearance(self):
        assert (Traced.insert("x", Origin("b", 1)) + self.TEXT + Traced.insert("y", Origin("b", 2))).paths() == [
            "b",
            "p",
        ]

    def test_nothing_has_no_origin(self):
        with pytest.raises(IndexError):
            Traced().origin_at(0)
