"""Files that are not what they should be: a message with a place, never a traceback, a hang or another package.

With ALL_BAD_INPUT=1 every value of every file is replaced by a value of every other type.
"""

from __future__ import annotations

import os
import re
import tomllib

import pytest
from miniature import PACKAGE, package, refused_package

from generator.errors import LoomError
from generator.recipe.files import read_text
from generator.recipe.library import Library
from generator.recipe.toml import toml_text

FIELDS = {
    "model/model": '''
        """The model."""

        from typing import Literal

        class Config:
            width: int = 1  # of the stream
            layers: int = 1
            rate: float = 1.0
            name: str = "a"
            fast: bool = False
            kind: Literal["a", "b"] = "a"
            most: int | None = None
            shape: tuple[int, ...] = ()
            rates: tuple[float, ...] = ()

        def model():
            return 1
    '''
}
EXPORTS = PACKAGE.replace('["model"]', '["model", "PRESETS"]')
TOY = "templates/architectures/toy.toml"


@pytest.mark.parametrize(
    "value",
    [
        *("width = 2.5", 'width = "32"', "width = true", "width = []", "rate = '1'", "rate = false", "name = 1"),
        *("fast = 1", "kind = 'c'", "most = 'x'", "shape = 3", "shape = [1, 'a']", "shape = [1.5]", "width = {}"),
        *("rate = inf", "rate = nan", "rates = [1.0, nan]"),
    ],
)
def test_values_of_another_type_than_their_field_s(value):
    text = refused_package(FIELDS, architecture=f'title = "A"\n[presets.tiny]\nlayers = 2\n{value}\n', package=EXPORTS)
    assert text.startswith(f"{TOY}:7: {value.partition(' ')[0]} is ")
    assert ("and model/model declares it as " in text) != ("Give a finite number." in text)


def test_values_that_fields_take():
    values = "rate = 2", "most = 3", "shape = [1, 2]", "kind = 'b'", "fast = true", "name = ''"
    for lines in ("\n".join(values), "rate = 1e-3\nshape = []"):
        architecture = f'title = "A"\n[presets.tiny]\n{lines}\n'
        assert "PRESETS" in package(FIELDS, architecture=architecture, package=EXPORTS).files["config.py"]


@pytest.mark.parametrize("field", ["x: float = 'a'", "x: int = 1.5", "x: str = None", "x: int = setting('text')"])
def test_defaults(field):
    host = f"class Config:\n    # what it is\n    {field}\n\n\ndef model():\n    return 1\n"
    text = refused_package({"model/model": host}, architecture='title = "A"\n[settings]\ntext = "t"\n')
    assert text.startswith("fragments/model/model.py:3: x is ")


OUTPUTS = "../../evil", "/evil", "a/../b", "a//b", "gen.lock", "a\\u0000b", "model.py", "__init__.py", "model.py/x"
FOLDERS = "../x.py", "/x.py", "__init__.py", "x", "a\\u0000.py", "a b/", ""
WORDS = '\'a """ b\'', "'a \\ b'", '"a\\u0000b"', "'say \"so\"'"
COUNTS = "__import__('os')", "config.layers ** 9", "x", "1 +", "config.layers()", "'a'", "1.5"
TITLES = 'a\\"\\"\\"b', "a\\\\b", "a\\u0000b", "a\\nb", 'x\\"'
LAYERS = 'title = "A"\n[[layers]]\npattern = ["a"]\ncount = "{}"\n[kinds.a]\n'
MADE = f'{PACKAGE}[templates]\n"{{}}" = "templates/r.jinja"\n'
TEMPLATES = [
    *("{% for n in range(10**9) %}{% endfor %}", "{{ 'a' * 1000000000 }}", "{{ title.__class__ }}"),
    *("{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ fields.append(1) }}"),
    "{{ cycler.__init__.__globals__.os.system('x') }}",
]
NAMED = "my-model", "1x", "class", "a b", "é"
BAD = [
    *[({"package": MADE.format(it), "templates/r.jinja": "x\n"}, "templates/package.toml:14: ") for it in OUTPUTS],
    *[({"package": PACKAGE.replace("model.py", it)}, "templates/package.toml:4: folders.model is ") for it in FOLDERS],
    *[({"package": f'{PACKAGE}"model.py" = {it}\n'}, "templates/package.toml:13: ") for it in WORDS],
    *[({"architecture": LAYERS.format(it)}, f"{TOY}:7: ") for it in COUNTS],
    *[({"architecture": f'title = "{it}"\n'}, f"{TOY}:4: title is ") for it in TITLES],
    *[
        ({"package": MADE.format("R.md"), "templates/r.jinja": f"\n{it}\n"}, "templates/r.jinja:2: ")
        for it in TEMPLATES
    ],
    (
        {"package": MADE.format("x.toml"), "templates/r.jinja": "a = {{ title }}\n"},
        "templates/r.jinja: x.toml would not be",
    ),
    ({"package": MADE.format("x.json"), "templates/r.jinja": "{"}, "templates/r.jinja: x.json would not be JSON"),
    *[
        ({p.format(n): 'title = "A"\n'}, f"{p.format(n)}: {n!r} cannot be the name of a package\n  ")
        for n in NAMED
        for p in ("templates/architectures/{}.toml", "targets/{}/target.toml")
    ],
]


@pytest.mark.parametrize(("texts", "message"), BAD)
def test_what_would_reach_out_of_a_package_or_not_be_what_it_says(texts, message):
    assert refused_package(FIELDS, **texts).startswith(message)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoomError, match="is not a regular file"):
        read_text(tmp_path / "pipe", "pipe")
    (tmp_path / "fragments").mkdir()
    os.mkfifo(tmp_path / "fragments/pipe.py")
    with pytest.raises(LoomError, match="is not a regular file"):
        Library.read([tmp_path])


@pytest.mark.parametrize("value", [None, float("nan"), "\ud800", [1, None], object()])
def test_what_toml_has_no_word_for(value):
    with pytest.raises(LoomError, match="cannot be written as TOML"):
        toml_text({"a": {"b": value}}, "x.toml")


def test_toml_reads_as_it_was_written():
    tables = {"a": '🧵 "quoted"\\\n\x00\x7f', "b": {"c": {"d": [[1], ["x"]], "e": 1e-30}}, "f": [{"g": 10**30}]}
    assert tomllib.loads(toml_text(tables, "x.toml")) == tables


# files by the hundred


class TestEndless:
    """What a template or a fragment would take for ever over, or nest without end, is an error at its line."""

    TARGET = 'title = "Anywhere"\n[templates]\n"R.md" = "templates/R.md.jinja"\n'
    LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

    @pytest.mark.parametrize(
        ("template", "said"),
        [
            (LOOPS, "R.md.jinja:2: the template fails: TimeoutError: it takes longer than 0.3 seconds"),
            (
                "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
                "TimeoutError",
            ),
            ("{{ lipsum(n=10000000) }}", "TimeoutError"),
            ("{{ 'x'|center(2000000) }}", "it writes 2,000,001 characters, of 1,000,000 at most"),
            ("{{ '%2000000d'|format(1) }}", "characters, of 1,000,000 at most"),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply, or calls itself"),
            ("{% if title %}" * 1500 + "{% endif %}" * 1500, "nested too deeply"),
            ("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}", "nested too deeply"),
            ("{{" + "not " * 5000 + "1 }}", "nested too deeply"),
            ("{{" + "1 + " * 5000 + "1 }}", "nested too deeply"),
        ],
        ids=["loops", "macros", "lipsum", "center", "format", "recursion", "ifs", "parentheses", "nots", "sums"],
    )
    def test_template(self, monkeypatch, template, said):
        if "Timeout" in said:
            monkeypatch.setattr("generator.package.templating._MAX_SECONDS", 0.3)
        texts = {"templates/R.md.jinja": f"\n{template}"}
        assert said in refused_package(FIELDS, target=self.TARGET, **texts)

    @pytest.mark.parametrize(
        "body",
        [
            "if x == 0:\n        return 1\n" + "".join(f"    elif x == {n}:\n        return 1\n" for n in range(1500)),
            "return " + "x + " * 3000 + "x\n",
            "return x" + ".a" * 3000 + "\n",
            "return " + "(" * 1000 + "x" + ")" * 1000 + "\n",
        ],
        ids=["elif", "sums", "attributes", "parentheses"],
    )
    def test_fragment(self, body):
        text = refused_package({"model/deep": f'"""Deep."""\n\n\ndef model(x):\n    {body}'})
        assert re.match("fragments/model/deep.py:[45]: .*nested", text)

    @pytest.mark.parametrize("depth", [30, 3000])
    def test_table(self, depth):
        text = refused_package(FIELDS, target=f'title = "Deep"\n[settings]\nx = {"[" * depth}{"]" * depth}\n')
        assert re.match("targets/[a-z]+/target.toml:3: (nested|not valid TOML)", text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *(
            (f"x = 1  # {mark}a", f"U+{ord(mark):04X}")
            for mark in "\u202e\u2066\u200b\u200d\u2060\ufeff\u00ad\u061c\x08\x0c\x7f\xa0"
        ),
        ("\u0430 = 1", "has the name '\\u0430'"),  # Cyrillic, as is what follows
        ("\ufb01rst = 1", "has the name '\\ufb01rst'"),
        ("x = {'l\u043ess': 1}", "a word of two alphabets: 'l\\u043ess'"),
        ("# \u0441ausal", "a word of two alphabets"),
        ("x = 'K\u0391'", "a word of two alphabets"),
        ("x = '\u0434\u0430 \u65e5\u672c gr\u00f6\u00dfer \U0001f680'  # 2\u03c0, \u0394t, 3 \u00d7 4\n\ty = 1", ""),
    ],
)
@pytest.mark.parametrize("name", ["fragments/model/x.py", "targets/x/target.toml", "templates/x.jinja"])
def test_source_that_does_not_say_what_it_shows(tmp_path, line, said, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(f"# one\n{line}\n")
    if said and (name.endswith(".py") or "the name" not in said):
        with pytest.raises(LoomError, match=re.escape(said)) as error:
            Library.read([tmp_path])
        assert error.value.where == f"{path}:2" and error.value.remedy
    else:
        assert Library.read([tmp_path]).files[name]
