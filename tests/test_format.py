"""What ruff does to code, and where each line of the result comes from.

In an expected text, the numbers before the bar are the source lines that the line's stretches come from, in order.
"""

from __future__ import annotations

import errno
import re
import subprocess
import sysconfig
from itertools import islice
from pathlib import Path
from textwrap import dedent

import pytest
from ruff import find_ruff_bin

from generator.code.format import format_python, tokenize
from generator.code.sourcemap import segments
from generator.code.traced import Origin, Traced
from generator.errors import LoomError


def ruff(text: str) -> str:
    """What ruff itself makes of a text."""
    command = [
        find_ruff_bin(),
        "format",
        "--isolated",
        "--no-cache",
        "--line-length=120",
        "--target-version=py311",
        "-",
    ]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()


def format_one(text: Traced) -> Traced:
    return format_python([text])[0]


def annotate(text: Traced) -> str:
    lines = []
    for line, stretches in zip(text.text.split("\n"), segments(text), strict=False):
        numbers = " ".join(str(origin.line) for _, origin in stretches)
        lines.append(f"{numbers:<5} | {line}".rstrip(" "))
    return "\n".join(lines)


def check(before: str, after: str) -> None:
    before = dedent(before).lstrip("\n")
    result = format_one(Traced.copy(before, "fragments/a.py"))
    assert annotate(result) == dedent(after).strip("\n").rstrip()
    assert result.text == ruff(before)


class TestLayout:
    """Ruff joins and splits lines; tokens keep their line."""

    def test_joins_lines(self):
        check(
            """
            x = f(
                a, b
            )
            """,
            """
            1 2 3 | x = f(a, b)
            """,
        )

    def test_splits_a_long_line_and_adds_a_comma(self):
        check(
            f"""
            before()
            result = function({"a" * 40}, {"b" * 40}, {"c" * 40})
            """,
            f"""
            1     | before()
            2     | result = function(
            2     |     {"a" * 40},
            2     |     {"b" * 40},
            2     |     {"c" * 40},
            2     | )
            """,
        )

    def test_splits_one_argument_a_line(self):
        check(
            f"""
            result = function({"a" * 40}, {"b" * 40},
                {"c" * 40}, {"d" * 40})
            """,
            f"""
            1     | result = function(
            1     |     {"a" * 40},
            1     |     {"b" * 40},
            2     |     {"c" * 40},
            2     |     {"d" * 40},
            2     | )
            """,
        )

    def test_keeps_a_magic_trailing_comma(self):
        check(
            """
            x = [1,
              2,]
            """,
            """
            1     | x = [
            1     |     1,
            2     |     2,
            2     | ]
            """,
        )

    def test_adds_blank_lines(self):
        check(
            """
            import a
            def f(): pass
            def g():
                pass
            """,
            """
            1     | import a
            1     |
            1     |
            2     | def f():
            2     |     pass
            2     |
            2     |
            3     | def g():
            4     |     pass
            """,
        )

    def test_splits_at_semicolons(self):
        check(
            """
            a = 1; b = 2;
            c = 3
            """,
            """
            1     | a = 1
            1     | b = 2
            2     | c = 3
            """,
        )

    def test_drops_backslashes(self):
        check(
            """
            assert a, \\
                b
            x = a + \\
              b
            """,
            """
            1 2   | assert a, b
            3 4   | x = a + b
            """,
        )

    def test_keeps_backslashes_that_are_not_to_be_formatted(self):
        check(
            """
            # fmt: off
            x = a + \\
              b
            # fmt: on
            """,
            """
            1     | # fmt: off
            2     | x = a + \\
            3     |   b
            4     | # fmt: on
            """,
        )

    def test_drops_blank_lines_at_the_start(self):
        result = format_one(Traced.copy("\n \nx=1\n", "a.py"))
        assert result == Traced.insert("x = 1\n", Origin("a.py", 3))

    def test_drops_form_feeds(self):
        check("a=1\n\f\nb=2\n", "1     | a = 1\n1     |\n3     | b = 2")

    def test_keeps_crlf(self):
        result = format_one(Traced.copy("a=1\r\nb='''x\r\ny'''\r\n", "a.py"))
        assert result.text == 'a = 1\r\nb = """x\r\ny"""\r\n'
        assert [line[0][1].line for line in segments(result)] == [1, 2, 3]


class TestPunctuation:
    """Ruff adds and drops parentheses and commas; what it adds comes from the token before."""

    def test_wraps_a_long_expression(self):
        check(
            f"""
            total = {"a" * 60} + \\
                {"b" * 60}
            """,
            f"""
            1     | total = (
            1     |     {"a" * 60}
            1 2   |     + {"b" * 60}
            2     | )
            """,
        )

    def test_drops_redundant_parentheses(self):
        check(
            """
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
            """
            1     | def f():
            2     |     return x
            2     |
            2     |
            4     | for x in y:
            4     |     pass
            5     | print((yield))
            6 7   | assert a, b
            6     |
            6     |
            8     | class A:
            8     |     pass
            8     |
            8     |
            9     | with open(a) as b:
            9     |     pass
            10 11 | del (a), (b)
            """,
        )

    def test_keeps_parentheses_that_mean_something(self):
        check(
            """
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
            """
            1 2   | x = (a + b) * c
            4     | y = (1,)
            5 6   | z = x[(1, 2)]
            7 8   | del (a, b)
            9     | w = -(2**8)
            """,
        )

    def test_splits_at_a_dropped_parenthesis_with_a_comma(self):
        check(
            """
            for x in (1,
                2,): pass
            f(a,
              (
                b, c), d)
            """,
            """
            1     | for x in (
            1     |     1,
            2     |     2,
            2     | ):
            2     |     pass
            3 4 5 | f(a, (b, c), d)
            """,
        )


class TestComments:
    """Ruff moves comments behind the tokens of their line; they keep their own source line."""

    def test_keeps_a_comment_in_parentheses(self):
        check(
            """
            x = (  # why
                1
            )
            """,
            """
            1     | x = (  # why
            2     |     1
            3     | )
            """,
        )

    def test_does_not_take_a_part_of_a_comment_for_another(self):
        check(
            """
            x = 1  # a  # b
            y = 2  # a
            """,
            """
            1     | x = 1  # a  # b
            2     | y = 2  # a
            """,
        )

    def test_spaces_comments(self):
        check(
            """
            #!shebang
            #comment
            #: documentation
            x = [  #first
                #alone
                1,#last
            ]
            """,
            """
            1     | #!shebang
            2     | # comment
            3     | #: documentation
            4     | x = [  # first
            5     |     # alone
            6     |     1,  # last
            7     | ]
            """,
        )

    def test_keeps_equal_comments_in_order(self):
        check(
            """
            def f():
                # same
                pass  # same
                # same
            """,
            """
            1     | def f():
            2     |     # same
            3     |     pass  # same
            4     |     # same
            """,
        )

    def test_leaves_what_is_not_to_be_formatted(self):
        check(
            """
            # fmt: off
            x  =  [1,
               2]
            # fmt: on
            y  =  1
            z  =  2  # fmt: skip
            """,
            """
            1     | # fmt: off
            2     | x  =  [1,
            3     |    2]
            4     | # fmt: on
            5     | y = 1
            6     | z  =  2  # fmt: skip
            """,
        )


class TestLiterals:
    """Ruff respells strings and numbers, and indents docstrings anew; each line of a string keeps its own."""

    def test_respells_numbers(self):
        check("x = 0XABCDEF, 1E+5, 10J, .5, 1., 0O17, 1_000", "1     | x = 0xABCDEF, 1e5, 10j, 0.5, 1.0, 0o17, 1_000")

    def test_respells_strings(self):
        check(
            r"""
            x = '\xAB\N{EN dash}', U'a', bR'c', 'it\'s', "\'", 'a' "'"
            """,
            r"""
            1     | x = "\xab\N{EN DASH}", "a", Rb"c", "it's", "'", "a'"
            """,
        )

    def test_indents_docstrings(self):
        check(
            """
            def f():
              \'\'\'One.

                 Two.

              \'\'\'
              x = \'\'\'a
            b
              c\'\'\'
            """,
            '''
            1     | def f():
            2     |     """One.
            2     |
            4     |     Two.
            4     |
            6     |     """
            7     |     x = """a
            8     | b
            9     |   c"""
            ''',
        )

    def test_traces_blank_lines_in_a_string(self):
        result = format_one(Traced.copy('"""a\n\n\nb"""\n', "a.py"))
        assert [result.origin_at(offset).line for offset in (0, 5, 6, 7)] == [1, 2, 3, 4]

    def test_joins_strings(self):
        check(
            """
            x = ('a {'  # one
              f'{b}'
              'c')
            y = 'd' 'e', 'f'
            """,
            """
            1     | x = (
            1     |     "a {"  # one
            2     |     f"{b}"
            3     |     "c"
            3     | )
            4     | y = "de", "f"
            """,
        )
        check("x = f('a {'\n  f'{b}' '}')\n", '1 2   | x = f(f"a {{{b}}}")')

    def test_keeps_f_strings_whole(self):
        check(
            """
            x = f'{a!r:>{w}} {{b}}' F'{f"{c}"}' rf'\\d{a}'
            y = f\'\'\'{
              a}
            {b}\'\'\'
            z = f'{d["e"]}' f"{d["e"]}"
            """,
            """
            1     | x = f"{a!r:>{w}} {{b}}" f"{f'{c}'}" rf"\\d{a}"
            2     | y = f\"\"\"{a}
            3     | {b}\"\"\"
            5     | z = f"{d['e']}{d['e']}"
            """,
        )

    def test_f_string_is_one_token(self):
        text = """f'{f"{a:{b}}"} {c!r}' f"{d["e"]}" + rf'''{
        a}'''"""
        words = [token.text for token in tokenize(text)]
        assert words == [
            """f'{f"{a:{b}}"} {c!r}'""",
            """f"{d["e"]}\"""",
            "+",
            """rf'''{
        a}'''""",
        ]


class TestSyntax:
    """Newer and rarer forms."""

    def test_match_and_walrus(self):
        check(
            """
            if (n:=1)  : pass
            match x:
              case {'a':1, **rest} if (n): pass
              case A(b=[1,
                 *_]): pass
            """,
            """
            1     | if n := 1:
            1     |     pass
            2     | match x:
            3     |     case {"a": 1, **rest} if n:
            3     |         pass
            4 5   |     case A(b=[1, *_]):
            5     |         pass
            """,
        )

    def test_decorators_async_and_annotations(self):
        check(
            """
            @ decorator
            @ other (1)
            async  def f(a:int=1,*,b:'str'=2)->list [
               int]:
              async with a as b, c as d: pass
              await (x)
              return [x async  for x in y]
            """,
            """
            1     | @decorator
            2     | @other(1)
            3 4   | async def f(a: int = 1, *, b: "str" = 2) -> list[int]:
            5     |     async with a as b, c as d:
            5     |         pass
            6     |     await x
            7     |     return [x async for x in y]
            """,
        )

    def test_imports(self):
        check(
            """
            from . .. import (a)
            from .. . import (b,)
            """,
            """
            1     | from ... import a
            2     | from ... import (
            2     |     b,
            2     | )
            """,
        )

    def test_unicode(self):
        check("été='ж𝄞';ß=1\n", '1     | été = "ж𝄞"\n1     | ß = 1')
        check("x='\u2028'\ny=1\n", '1     | x = "\u2028"\n2     | y = 1')

    @pytest.mark.parametrize(("before", "after"), [("", ""), ("  ", ""), ("\n \n", "\n"), ("# only", "# only\n")])
    def test_hardly_any_text(self, before, after):
        assert format_one(Traced.copy(before, "a.py")).text == after


class TestWoven:
    """Text from several sources."""

    def test_parameter_threaded_into_a_signature(self):
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

    def test_is_cached(self):
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
            ("x = 1\ny = 'abc\n", 12, "missing closing quote"),
        ],
    )
    def test_not_python(self, text, line, words):
        with pytest.raises(LoomError, match=re.escape(words)) as caught:
            format_one(Traced.copy(text, "a.py", 11))
        assert caught.value.where == f"a.py:{line}"
        assert caught.value.remedy

    def test_names_the_fragment_that_was_spliced_in(self):
        source = Traced.copy("def f():\n", "host.py", 7) + Traced.copy("    x = = 1\n", "splice.py", 3)
        with pytest.raises(LoomError) as caught:
            format_one(source)
        assert caught.value.where == "splice.py:3"

    @pytest.mark.parametrize("called", ["pathlib.Path.write_bytes", "ruff.find_ruff_bin"])
    def test_no_room_or_no_ruff(self, called, monkeypatch):
        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(called, fail)
        with pytest.raises(LoomError, match="No space left") as caught:
            format_one(Traced.copy("x = 'no room'\n", "a.py"))
        assert "TMPDIR" in caught.value.remedy


def standard_library(count: int, longest: int) -> list[Path]:
    """Short files of the standard library, the same ones each time on one version of Python."""
    root = Path(sysconfig.get_path("stdlib"))
    folders = [root, *(root / name for name in ("asyncio", "email", "importlib", "json", "logging", "multiprocessing"))]
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    return list(islice((path for path in paths if 30 < path.read_text("utf-8").count("\n") < longest), count))


def unquoted(text: str) -> str:
    """What stays of a line of a string or of a comment, whatever ruff does."""
    text = re.sub("^[a-zA-Z]+(?=[\"'])", "", text)
    return re.sub(r"[\s\\\"']", "", text).lower()


class TestStandardLibrary:
    @pytest.mark.parametrize("path", standard_library(60, longest=200), ids=lambda path: path.name)
    def test_each_token_comes_from_a_line_that_has_it(self, path):
        text = path.read_text("utf-8")
        source = Traced.copy(text, path.name)
        result = format_one(source)
        assert result.text == ruff(text)

        lines = text.split("\n")
        words = {number: [] for number in range(1, len(lines) + 1)}
        for token in tokenize(text):
            words[source.origin_at(token.start).line].append(token.text)
        before = 1  # the line of the last token
        code = 1  # the line of the last token that ruff does not move
        for token in tokenize(result.text):
            line = result.origin_at(token.start).line
            if token.text[0] == "#" or token.text[-1] in "\"'":
                start = token.start
                for part in token.text.split("\n"):
                    line = result.origin_at(start).line if part else line
                    here = unquoted(lines[line - 1])
                    joined = any(
                        word[-1] in "\"'" and unquoted(part).startswith(unquoted(word)) for word in words[line]
                    )
                    assert unquoted(part) in here or joined or part.strip() == '"""'
                    start += len(part) + 1
            elif token.text[0].isdigit():
                assert any(re.match(r"\.?\d", word) and eval(word) == eval(token.text) for word in words[line])
            else:
                assert token.text in words[line] or (token.text in ",()" and line == before)
            if token.text[0] != "#":
                assert line >= code
                code = line
            before = line

        assert format_one(result) == result
