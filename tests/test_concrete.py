"""What libcst reads is printed as it is, and each token with the line that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_format import standard_library

from generator.code.concrete import Concrete, indent, read_concrete
from generator.code.sourcemap import segments
from generator.code.traced import Origin, Traced
from generator.errors import LoomError

ROOT = Path(__file__).resolve().parents[1]
FRAGMENTS = {str(path): path.read_text() for path in sorted((ROOT / "fragments").rglob("*.py"))[::16]}
MIXED = Traced.copy("def f(a,\n", "host.py", 3) + Traced.insert("b", Origin("cause.py", 9))
MIXED += Traced.copy("):\n    x = '''c\n  d'''\n", "host.py", 4) + Traced.copy(
    "    # e\n    return x  # f\n", "other.py", 7
)


def printed_again(text: Traced) -> Traced:
    return Concrete.read(text).printed()


@pytest.mark.parametrize("texts", [FRAGMENTS, standard_library(25, longest=150)], ids=["fragments", "standard library"])
def test_files(texts):
    assert len(texts) > 20
    for path, text in texts.items():
        source = Traced.copy(text, path, 5)
        if text.strip():
            assert printed_again(source) == source, path


@pytest.mark.parametrize(
    "text",
    [
        MIXED,
        Traced.copy("    x = 1  # a\n\n    # b\n    y = (\n        x)\n", "a.py"),
        Traced.copy("x + 1", "a.py"),
        Traced.copy("# only\n", "a.py"),
        Traced.copy("x = 1 + \\\n  2\n", "a.py"),
        Traced.copy("s = 'é'; t = f'{s}\u2028'\n", "a.py"),
    ],
    ids=["several sources", "indented", "an expression", "a comment", "a backslash", "wide letters"],
)
def test_texts(text):
    assert segments(printed_again(text)) == segments(text)
    assert printed_again(text).text == text.text


def test_what_is_printed_is_not_parsed_again(monkeypatch):
    text = printed_again(Traced.copy("unparsed = 1\n", "a.py"))
    monkeypatch.setattr("generator.code.concrete.Concrete.read", None)
    assert read_concrete(text).body.body


def test_what_libcst_would_drop():
    with pytest.raises(LoomError, match="would not keep this text") as caught:
        read_concrete(Traced.copy("\ufeffx = 1\n", "a.py", 4))
    assert caught.value.where == "a.py:4"


def test_lines_inside_strings_stay_where_they_are():
    text = '    x = ("a"\n         f"{b}")\n    y = """c\n  d"""  # e\n    z = r\'\'\'\n\'\'\'\n'
    assert indent(Traced.copy(text, "x.py"), 2).text == (
        '  x = ("a"\n       f"{b}")\n  y = """c\n  d"""  # e\n  z = r\'\'\'\n\'\'\'\n'
    )
