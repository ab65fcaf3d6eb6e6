"""Errors that anyone can act on; and for any bad input there is one, and no traceback."""

from __future__ import annotations

import random

import pytest
from miniature import PACKAGE, files

from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.weaver import weave


class TestText:
    """Place, what is wrong, and below it what to do."""

    def test_all(self):
        assert str(LoomError("wrong", "fragments/a.py:3", "Fix it.")) == "fragments/a.py:3: wrong\n  Fix it."

    def test_without_a_place(self):
        assert str(LoomError("wrong", remedy="Fix it.")) == "wrong\n  Fix it."

    def test_message_alone(self):
        assert str(LoomError("wrong")) == "wrong"


class TestNearest:
    """A remedy names what is most alike, or all that there is."""

    @pytest.mark.parametrize(
        ("name", "known", "remedy"),
        [
            ("lama2", ["llama2", "gemma"], "Did you mean llama2?"),
            ("rope", ["ropes", "rope_x"], "Did you mean ropes or rope_x?"),
            ("zzz", ["b", "a"], "There is a, b."),
            ("zzz", [f"n{i:02}" for i in range(30)], f"There is {', '.join(f'n{i:02}' for i in range(20))}, …."),
            ("zzz", [], "There is none to choose from."),
        ],
    )
    def test_remedy(self, name, known, remedy):
        assert nearest(name, known) == remedy


HOST = '''"""A host."""

import math
from generator.language import emit, point, proceed, provide, receive, setting, splice

class Config:
    width: int = setting("width")  # of the stream

class Block:
    def __call__(self, x, y=1):
        point("Block.start", x, width=math.floor(x))
        with point("Block.around", x):
            x = x + y
        return x

def model(x):
    block: Block = Block()
    if setting("wide"):
        x = block(x, 2)
    return x

@provide("model")
def scale(x) -> int:
    step = x * 2
    return step

@splice("Block.start")
def _(x, width, scale):
    x = x * scale + width

@splice("Block.around")
def _(x):
    for _ in range(2):
        proceed()
'''
ARCHITECTURE = 'title = "Toy"\n[settings]\nwidth = 4\nwide = true\n[presets.small]\nwidth = 2\n'
TEMPLATE = "{{ title }}\n{% for field in fields %}{{ field.name }}\n{% endfor %}"
GOOD = files(
    {"model/host": HOST},
    architecture=ARCHITECTURE,
    package=PACKAGE + '[templates]\n"README.md" = "templates/readme.jinja"\n',
    **{"templates/readme.jinja": TEMPLATE},
)
SCRAPS = [
    "\x00",
    "\t",
    "\\",
    '"""',
    "(",
    ")",
    "[",
    "{%",
    "{{",
    "}}",
    ":",
    "=",
    "\n",
    "\r",
    " ",
    "  ",
    "*",
    "**",
    ",",
    "@",
]
SCRAPS += [
    "é",
    "\u2028",
    "\x0c",
    "point(",
    "emit(x)\n",
    "yield x\n",
    "return",
    "async ",
    "lambda x: ",
    "x = ",
    ";",
    "#",
    "'",
]


def try_to_weave(texts: dict[str, str]) -> bool:
    """Whether they can be woven; anything but a LoomError gets through."""
    try:
        weave("toy", "any", Library(texts))
    except LoomError as error:
        assert error.message and "\n" not in error.message.strip()[:1]
        return False
    return True


def test_ends_of_lines_make_no_difference():
    """A file is the same with the ends of lines of another system."""
    other = {path: text.replace("\n", "\r\n") for path, text in GOOD.items()}
    assert weave("toy", "any", Library(other)) == weave("toy", "any", Library(GOOD))


class TestAnyInput:
    """Whatever the sources hold, weaving them gives a package or a LoomError."""

    def test_the_good_one(self):
        assert try_to_weave(GOOD)

    @pytest.mark.parametrize("path", sorted(GOOD))
    def test_truncated(self, path):
        text = GOOD[path]
        step = max(len(text) // 12, 1)
        results = [try_to_weave(GOOD | {path: text[:end]}) for end in range(0, len(text), step)]
        assert False in results or path.endswith(("jinja", "target.toml"))

    @pytest.mark.parametrize("path", sorted(GOOD))
    def test_scraps(self, path):
        chance = random.Random(path)
        results = []
        for _ in range(12):
            text = GOOD[path]
            for _ in range(chance.randint(1, 3)):
                start = chance.randrange(len(text) + 1)
                end = min(len(text), start + chance.choice([0, 0, 0, 1, 5, 20]))
                text = text[:start] + chance.choice(SCRAPS) + text[end:]
            results.append(try_to_weave(GOOD | {path: text}))
        assert False in results

    @pytest.mark.parametrize("path", sorted(GOOD))
    def test_lines_in_another_order(self, path):
        chance = random.Random(path)
        for _ in range(4):
            lines = GOOD[path].splitlines(keepends=True)
            chance.shuffle(lines)
            try_to_weave(GOOD | {path: "".join(lines)})

    @pytest.mark.parametrize("path", sorted(GOOD))
    def test_random_bytes(self, path):
        chance = random.Random(path)
        for length in (1, 10, 100, 1000):
            text = chance.randbytes(length).decode("utf-8", "replace")
            assert not try_to_weave(GOOD | {path: text}) or path.endswith("jinja")

    @pytest.mark.parametrize("path", sorted(GOOD))
    def test_missing(self, path):
        assert not try_to_weave({other: text for other, text in GOOD.items() if other != path})

    @pytest.mark.parametrize(
        "text",
        [
            "x = " + "(" * 500 + ")" * 500 + "\n",
            "x = " + " + ".join(["1"] * 5000) + "\n",
            "x = " + "-" * 20_000 + "1\n",
            "x = 1" + "0" * 5000 + "\n",
        ],
    )
    def test_too_deep_or_too_long(self, text):
        try_to_weave(GOOD | {"fragments/model/host.py": HOST + text})

    @pytest.mark.parametrize("words", ["a = " + "[" * 5000, "a" + ".a" * 5000 + " = 1"])
    def test_deep_toml(self, words):
        assert not try_to_weave(GOOD | {"targets/any/target.toml": words})
