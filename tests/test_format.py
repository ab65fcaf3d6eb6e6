"""Formatted text is what black makes of it, and each token keeps the source line that has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import zlib
from itertools import islice
from pathlib import Path
from textwrap import dedent

import pytest

from generator.code.black import run_black as run_black_remembered
from generator.code.format import format_python, tokenize
from generator.code.sourcemap import segments
from generator.code.traced import Origin, Traced
from generator.disk.formatted import FormattedTexts
from generator.errors import LoomError

LONG = ", ".join(letter * 40 for letter in "abc")
SNIPPETS = {
    "joined lines": "x = f(\n    a, b\n)\n",
    "a long line": f"before()\nresult = function({LONG})\n",
    "an argument a line": f"result = function({LONG},\n    {'d' * 40})\n",
    "a magic trailing comma": "x = [1,\n  2,]\nfor y in (1,\n    2,): pass\nf(a,\n  (\n    b, c), d)\n",
    "blank lines": "\n \nimport a\ndef f(): pass\ndef g():\n    pass\n",
    "semicolons": "a = 1; b = 2;\nc = 3\n",
    "backslashes": "assert a, \\\n    b\nx = a + \\\n  b\n# fmt: off\nx = a + \\\n  b\n# fmt: on\n",
    "a form feed": "a=1\n\f\nb=2\n",
    "line ends of DOS": "a=1\r\nb='''x\r\ny'''\r\n",
    "a long expression": f"total = {'a' * 60} + \\\n    {'b' * 60}\n",
    "redundant parentheses": """
        def f():
            return (x
            )
        for (x) in y: pass
        print((yield))
        assert (a), (
          b)
        class A(): pass
        with (open(a)) as b: pass
        del (a), (
            b)
    """,
    "parentheses with a meaning": """
        x = (
            (a + b) * c
        )
        y = 1,
        z = x[(1,
          2)]
        del (a,
          b)
        w = -2 ** 8
    """,
    "comments": """
        #!shebang
        #comment
        #: documentation
        x = [  #first
            #alone
            1,#last
        ]
        x = (  # why
            1
        )
        x = 1  # a  # b
        y = 2  # a
        def f():
            # same
            pass  # same
            # same
    """,
    "text that is not formatted": """
        # fmt: off
        x  =  [1,
           2]
        # fmt: on
        y  =  1
        z  =  2  # fmt: skip
    """,
    "numbers": "x = 0XABCDEF, 1E+5, 10J, .5, 1., 0O17, 1_000\n",
    "strings": r"""x = '\xAB\N{EN dash}', U'a', bR'c', 'it\'s', "\'", 'a' "'" """,
    "a docstring": "def f():\n  '''One.\n\n     Two.\n\n  '''\n  x = '''a\nb\n  c'''\n",
    "adjacent strings": "x = ('a {'  # one\n  f'{b}'\n  'c')\ny = 'd' 'e', 'f'\nx = f('a {'\n  f'{b}' '}')\n",
    "f-strings": "x = f'{a!r:>{w}} {{b}}' F'{f\"{c}\"}' rf'\\d{a}'\nz = f'{d[\"e\"]}'\n",
    "match": "if (n:=1)  : pass\nmatch x:\n  case {'a':1, **rest} if (n): pass\n  case A(b=[1,\n     *_]): pass\n",
    "decorators and annotations": """
        @ decorator
        @ other (1)
        async  def f(a:int=1,*,b:'str'=2)->list [
           int]:
          async with a as b, c as d: pass
          await (x)
          return [x async  for x in y]
    """,
    "imports": "from . .. import (a)\nfrom .. . import (b,)\n",
    "unicode": "été='ж𝄞';ß=1\nx='\u2028'\ny=1\n",
    "a comment alone": "# only",
    "nothing": "\n \n",
}


def run_black(texts: list[str], folder: Path) -> list[str]:
    """What black itself makes of texts."""
    paths = [folder / f"{number}.py" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    options = ["--quiet", "--line-length=120", "--target-version=py311", "--workers=1"]
    subprocess.run([sys.executable, "-m", "black", *options, *paths], check=True)
    return [path.read_bytes().decode() for path in paths]


def format_one(text: Traced) -> Traced:
    return format_python([text])[0]


def annotate(text: str) -> str:
    """A formatted text, with the source lines that the stretches of each line come from, in order."""
    result = format_one(Traced.copy(dedent(text), "a.py"))
    lines = zip(result.text.split("\n")[:-1], segments(result), strict=True)
    return "".join(f"{' '.join(str(origin.line) for _, origin in found)}: {line}\n" for line, found in lines)


def unquoted(text: str) -> str:
    """What stays of a line of a string or of a comment, whatever black does."""
    text = re.sub("^[a-zA-Z]+(?=[\"'])", "", text)
    return re.sub(r"[\s\\\"']", "", text).lower()


def check_origins(text: str, result: Traced) -> None:
    """Each token comes from a line that has it; what black adds comes from the line of the token before it."""
    source = Traced.copy(text, "a.py")
    lines = text.split("\n")
    words = {number: [] for number in range(1, len(lines) + 1)}
    for token in tokenize(text):
        words[source.origin_at(token.start).line].append(token.text)
    before = code = 1  # the line of the last token, and that of the last one which black does not move
    for token in tokenize(result.text):
        line = result.origin_at(token.start).line
        if token.text[0] == "#" or token.text[-1] in "\"'":
            start = token.start
            for part in token.text.split("\n"):
                line = result.origin_at(start).line if part else line
                here = unquoted(lines[line - 1])
                joined = any(word[-1] in "\"'" and unquoted(part).startswith(unquoted(word)) for word in words[line])
                assert unquoted(part) in here or joined or part.strip() == '"""', (token, line)
                start += len(part) + 1
        elif token.text[0].isdigit():
            assert any(re.match(r"\.?\d", word) and eval(word) == eval(token.text) for word in words[line]), token
        else:
            assert token.text in words[line] or (token.text in ",()" and line == before), (token, line)
        if token.text[0] != "#":
            assert line >= code, (token, line)
            code = line
        before = line


def standard_library(count: int, longest: int) -> dict[str, str]:
    """Short files of the standard library, the same ones each time on one version of Python."""
    root = Path(sysconfig.get_path("stdlib"))
    folders = [root, *(root / name for name in ("asyncio", "email", "importlib", "json", "logging", "multiprocessing"))]
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    texts = ((str(path), path.read_text("utf-8")) for path in paths)
    return dict(islice(((path, text) for path, text in texts if 30 < text.count("\n") < longest), count))


@pytest.mark.parametrize("texts", [SNIPPETS, standard_library(60, longest=200)], ids=["snippets", "standard library"])
def test_formatted_text_and_its_origins(texts, tmp_path):
    sources = [dedent(text).lstrip("\n") if "\n " in text else text for text in texts.values()]
    results = format_python([Traced.copy(text, "a.py") for text in sources])
    for name, text, result, expected in zip(texts, sources, results, run_black(sources, tmp_path), strict=True):
        assert result.text == expected, name
        if result.text.strip():
            check_origins(text, result)
    assert format_python(results) == results


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a=1\n\f\nb=2\n", "1: a = 1\n1: \f\n3: b = 2\n"),
        ("\n \nx=1\n", "3: x = 1\n"),
        ("x = f(\n    a, b\n)\n", "1 2 3: x = f(a, b)\n"),
        ("x = (\n    (a + b) * c\n)\n", "1 2: x = (a + b) * c\n"),
        ("for x in (1,\n    2,): pass\n", "1: for x in (\n1:     1,\n2:     2,\n2: ):\n2:     pass\n"),
        ("x = 1  # a  # b\ny = 2  # a\n", "1: x = 1  # a  # b\n2: y = 2  # a\n"),
        ("def f():\n    # b\n    pass  # b\n    # b\n", "1: def f():\n2:     # b\n3:     pass  # b\n4:     # b\n"),
        ("x = 'a'\\\n  'b'\ny=1\n", '1 2: x = "a" "b"\n3: y = 1\n'),
        ("def f():\n  '''One.\n\n  Two.\n  '''\n", '1: def f():\n2:     """One.\n2: \n4:     Two.\n5:     """\n'),
        ("y = f'''{\n  a}\n{b}'''\nz=1\n", '1: y = f"""{\n2:   a}\n3: {b}"""\n4: z = 1\n'),
        ("import a\ndef f(): pass\n", "1: import a\n1: \n1: \n2: def f():\n2:     pass\n"),
    ],
)
def test_lines_of_a_result(before, after):
    assert annotate(before) == after


def test_blank_lines_in_a_string():
    result = format_one(Traced.copy('"""a\n\n\nb"""\n', "a.py"))
    assert [result.origin_at(offset).line for offset in (0, 5, 6, 7)] == [1, 2, 3, 4]


def test_f_string_is_one_token():
    words = ["""f'{f"{a:{b}}"} {c!r}'""", """f"{d["e"]}\"""", "+", "rf'''{\n        a}'''"]
    assert [token.text for token in tokenize(" ".join(words))] == words


def test_parameter_threaded_into_a_signature():
    attention, cause = "fragments/attention.py", Origin("fragments/rope.py", 9)
    head = Traced.copy("def __call__(self, x,\n  mask", attention, 4)
    source = head + Traced.insert(", positions", cause) + Traced.copy("):\n    pass\n", attention, 5)
    result = format_one(source)
    assert result.text == "def __call__(self, x, mask, positions):\n    pass\n"
    assert [(piece.text, str(piece.origin)) for piece in result.pieces] == [
        ("def __call__(self, x, ", "fragments/attention.py:4"),
        ("mask", "fragments/attention.py:5"),
        (", positions", "fragments/rope.py:9"),
        ("):\n", "fragments/attention.py:5"),
        ("    pass\n", "fragments/attention.py:6"),
    ]


def test_is_cached():
    once = format_one(Traced.copy("cached=1\n", "a.py"))
    assert format_one(Traced.copy("cached=1\n", "a.py")) is once
    assert format_one(Traced.copy("cached=1\n", "b.py")) != once


class TestErrors:
    """An error names the source line, which is seldom the line in the woven text."""

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("x = 1\ny = = 1\n", 12, "'y = = 1'"),
            ("\n\n  \nx = = 1\n", 14, "'x = = 1'"),
            ("if x:\n", 11, "'if x:'"),  # found after the last line
            ("x = 1\ny = (1,\n2\n", 13, "'2'"),
            ("x = 1\ny = 'abc\n", 12, '"y = \'abc"'),
        ],
    )
    def test_not_python(self, text, line, words):
        with pytest.raises(LoomError, match=re.escape(words)) as caught:
            format_one(Traced.copy("a = 1\n", "host.py", 7) + Traced.copy(text, "a.py", 11))
        assert caught.value.where == f"a.py:{line}"
        assert caught.value.remedy


class TestMemory:
    """Results are remembered in the user's cache folder; whatever is wrong there is made anew."""

    TEXT = Traced.copy("x = 'remembered'\n", "a.py")

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr("generator.code.black._remembered", {})
        monkeypatch.setattr("generator.code.black.memory", FormattedTexts())
        return tmp_path / "loomax/black"

    def again(self, monkeypatch) -> str:
        """What another process gets, which has no black."""
        monkeypatch.setattr("generator.code.black._remembered", {})
        with monkeypatch.context() as patch:
            patch.setattr("generator.code.black._format", lambda source: "made anew")
            return run_black_remembered([self.TEXT])[0]

    def test_another_process_does_not_format_again(self, monkeypatch):
        assert run_black_remembered([self.TEXT]) == ['x = "remembered"\n']
        assert self.again(monkeypatch) == 'x = "remembered"\n'

    @pytest.mark.parametrize("entry", [b"", b"x", *(zlib.compress(json.dumps(it).encode()) for it in (1, ["x", "y"]))])
    def test_a_damaged_entry(self, folder, entry, monkeypatch):
        run_black_remembered([self.TEXT])
        (path,) = folder.iterdir()
        path.write_bytes(entry)
        assert self.again(monkeypatch) == "made anew"

    def test_an_entry_of_another_text(self, folder, monkeypatch):
        run_black_remembered([self.TEXT])
        (path,) = folder.iterdir()
        run_black_remembered([Traced.copy("y = 1\n", "a.py")])
        (other,) = {*folder.iterdir()} - {path}
        path.write_bytes(other.read_bytes())
        assert self.again(monkeypatch) == "made anew"
