"""From traced text to segments, and from segments to `gen.map` and back."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.code.format import format_python
from generator.code.sourcemap import decode, encode, format_map, parse_map, segments
from generator.code.traced import Origin, Traced
from generator.errors import LoomError

A, B = "fragments/a.py", "fragments/b.py"


class TestSegments:
    """A line has a segment wherever its origin changes."""

    def test_copied_text_moves_on_a_line_with_each_newline(self):
        assert segments(Traced.copy("x\ny\n", A, 4)) == [[(0, Origin(A, 4))], [(0, Origin(A, 5))]]

    def test_inserted_text_has_one_origin(self):
        assert segments(Traced.insert("x\ny\n", Origin(A, 4))) == [[(0, Origin(A, 4))], [(0, Origin(A, 4))]]

    def test_origin_changes_inside_a_line(self):
        text = Traced.copy("f(x", A, 1) + Traced.insert(", y", Origin(B, 7)) + Traced.copy(")\nz\n", A, 1)
        assert segments(text) == [[(0, Origin(A, 1)), (3, Origin(B, 7)), (6, Origin(A, 1))], [(0, Origin(A, 2))]]

    def test_pieces_of_one_origin_are_one_segment(self):
        assert segments(Traced.copy("f(", A, 3) + Traced.insert("x)", Origin(A, 3))) == [[(0, Origin(A, 3))]]

    def test_indentation_has_the_origin_of_what_it_indents(self):
        text = Traced.copy("if x:\n    ", A, 1) + Traced.copy("y", B, 7)
        assert segments(text) == [[(0, Origin(A, 1))], [(0, Origin(B, 7))]]

    def test_blank_line_has_the_first_origin_of_the_line_before(self):
        text = Traced.copy("f(", A, 1) + Traced.copy("x)\n\n  \n", B, 7) + Traced.copy("z\n", A, 9)
        assert segments(text)[1:] == [[(0, Origin(A, 1))], [(0, Origin(A, 1))], [(0, Origin(A, 9))]]

    def test_blank_lines_at_the_start_have_the_first_origin(self):
        assert segments(Traced.copy("\n\nx\n", A, 1)) == [[(0, Origin(A, 3))]] * 3

    def test_only_a_newline_ends_a_line(self):
        text = Traced.copy("x = '\x0c\u2028'\r\ny\n", A, 1)
        assert segments(text) == [[(0, Origin(A, 1))], [(0, Origin(A, 2))]]

    def test_no_text_has_no_lines(self):
        assert segments(Traced()) == []

    def test_last_line_needs_no_newline(self):
        assert segments(Traced.copy("x\ny", A, 1)) == [[(0, Origin(A, 1))], [(0, Origin(A, 2))]]

    def test_only_blank_lines(self):
        with pytest.raises(LoomError, match="only blank lines") as caught:
            segments(Traced.copy("\n  \n", A, 4))
        assert caught.value.where == f"{A}:4"

    @given(st.lists(st.tuples(st.text("x \n", max_size=6), st.sampled_from([A, B]), st.integers(1, 9), st.booleans())))
    def test_agrees_with_the_text_at_each_character(self, parts):
        text = Traced.join(
            Traced.copy(part, path, line) if copied else Traced.insert(part, Origin(path, line))
            for part, path, line, copied in parts
        )
        if not text.text.strip():
            return
        result = segments(text)
        assert len(result) == text.text.count("\n") + (not text.text.endswith("\n"))
        assert all(line[0][0] == 0 for line in result)
        assert all(one[0] < two[0] and one[1] != two[1] for line in result for one, two in pairwise(line))
        row, column = 0, 0
        for offset, character in enumerate(text.text):
            if character == "x":
                assert [origin for start, origin in result[row] if start <= column][-1] == text.origin_at(offset)
            row, column = (row + 1, 0) if character == "\n" else (row, column + 1)


class TestNumbers:
    """Base 64 variable-length quantities, with the values that other implementations give."""

    @pytest.mark.parametrize(
        ("number", "digits"),
        [
            (0, "A"),
            (1, "C"),
            (-1, "D"),
            (15, "e"),
            (-15, "f"),
            (16, "gB"),
            (-16, "hB"),
            (511, "+f"),
            (512, "ggB"),
            (1000, "w+B"),
            (2**31 - 1, "+/////D"),
            (1 - 2**31, "//////D"),
        ],
    )
    def test_known_values(self, number, digits):
        assert encode(number) == digits
        assert decode(digits) == [number]

    def test_segment(self):
        assert decode("AAgBC") == [0, 0, 16, 1]

    @given(st.lists(st.integers()))
    def test_round_trip(self, numbers):
        assert decode("".join(map(encode, numbers))) == numbers


MODEL = [
    [(0, Origin(A, 4)), (3, Origin(B, 7)), (6, Origin(A, 4))],
    [(0, Origin(A, 5))],
    [(0, Origin(B, 2)), (20, Origin(B, 1))],
]


class TestFile:
    def test_text(self):
        """One file a line, sorted by path; `about` says what it is."""
        text = format_map({"train.py": [[(0, Origin(B, 1))]], "model.py": MODEL, "tests/__init__.py": []})
        assert text.splitlines()[2:] == [
            '"files": {',
            '"model.py": {"version":3,"file":"model.py","sources":["fragments/a.py","fragments/b.py"],"names":[],'
            '"mappings":"AAGA,GCGA,GDHA;AACA;ACHA,oBADA"},',
            '"tests/__init__.py": {"version":3,"file":"tests/__init__.py","sources":[],"names":[],"mappings":""},',
            '"train.py": {"version":3,"file":"train.py","sources":["fragments/b.py"],"names":[],"mappings":"AAAA"}',
            "}",
            "}",
        ]
        assert text.endswith("}\n")
        assert json.loads(text)["about"].startswith("For each file a source map")

    def test_does_not_depend_on_the_order_of_files(self):
        files = {"b.py": MODEL, "a.py": [[(0, Origin(A, 1))]]}
        assert format_map(files) == format_map(dict(reversed(files.items())))

    def test_no_files(self):
        assert parse_map(format_map({})) == {}

    def test_woven_and_formatted(self):
        source = (
            Traced.copy("def f(x,\n y", A, 4) + Traced.insert(", z", Origin(B, 7)) + Traced.copy("):\n  pass", A, 5)
        )
        lines = segments(format_python([source])[0])
        assert lines == [
            [(0, Origin(A, 4)), (9, Origin(A, 5)), (10, Origin(B, 7)), (13, Origin(A, 5))],
            [(0, Origin(A, 6))],
        ]
        assert parse_map(format_map({"f.py": lines})) == {"f.py": lines}

    origins = st.builds(Origin, st.sampled_from([A, B, "fragments/é.py"]), st.integers(1, 10**6))
    lines = st.lists(st.lists(st.tuples(st.integers(0, 200), origins), min_size=1))

    @given(st.dictionaries(st.text(), lines))
    def test_round_trip(self, files):
        assert parse_map(format_map(files)) == files

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"files": []}', '{"files": {"a.py": {}}}', '{"files": {"a.py": 3}}']
        + [
            json.dumps({"files": {"a.py": {"sources": ["b.py"], "mappings": mappings}}})
            for mappings in ("A", "AAA", "AAAAA", "AAA*", "AAAg", "ACAA", "ADAA", "AADA", "DAAA", "AAAA;;AAAA", 3)
        ],
    )
    def test_not_a_map(self, text):
        with pytest.raises(LoomError, match="not a map") as caught:
            parse_map(text)
        assert caught.value.where == "gen.map"
        assert caught.value.remedy
