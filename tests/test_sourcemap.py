"""From traced text to segments, and from segments to `gen.map` and back."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.code.format import format_python
from generator.code.sourcemap import decode_vlq, encode_vlq, format_map, parse_map, segments
from generator.code.traced import Origin, Traced
from generator.errors import LoomError

A, B = "fragments/a.py", "fragments/b.py"


class TestSegments:
    """A line has a segment wherever its origin changes."""

    @pytest.mark.parametrize(
        ("text", "lines"),
        [
            (Traced.copy("f(", A, 3) + Traced.insert("x)", Origin(A, 3)), [[(0, A, 3)]]),
            (Traced.copy("if x:\n    ", A, 1) + Traced.copy("y", B, 7), [[(0, A, 1)], [(0, B, 7)]]),  # indentation
            (
                Traced.copy("f(", A, 1) + Traced.copy("x)\n\n  \n", B, 7) + Traced.copy("z\n", A, 9),
                [[(0, A, 1), (2, B, 7)], [(0, A, 1)], [(0, A, 1)], [(0, A, 9)]],  # blank lines: the first of the last
            ),
            (Traced.copy("\n\nx\n", A, 1), [[(0, A, 3)]] * 3),
            (Traced.copy("x = '\x0c\u2028'\r\ny\n", A, 1), [[(0, A, 1)], [(0, A, 2)]]),
            (Traced(), []),
        ],
    )
    def test_lines(self, text, lines):
        assert segments(text) == [[(column, Origin(path, line)) for column, path, line in found] for found in lines]

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
        ("digits", "number"),
        [
            *[("A", 0), ("C", 1), ("D", -1), ("e", 15), ("f", -15), ("gB", 16), ("hB", -16), ("+f", 511), ("ggB", 512)],
            *[("w+B", 1000), ("+/////D", 2**31 - 1), ("//////D", 1 - 2**31)],
        ],
    )
    def test_known_values(self, digits, number):
        assert encode_vlq(number) == digits
        assert decode_vlq(digits) == [number]

    @given(st.lists(st.integers()))
    def test_round_trip(self, numbers):
        assert decode_vlq("".join(map(encode_vlq, numbers))) == numbers


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

    @settings(max_examples=40)
    @given(st.dictionaries(st.text(), lines, max_size=4))
    def test_round_trip(self, files):
        assert parse_map(format_map(files)) == files
        assert format_map(dict(reversed(files.items()))) == format_map(files)

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
