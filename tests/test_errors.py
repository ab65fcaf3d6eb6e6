"""Errors that anyone can act on; and for any bad input there is one, and no traceback."""

from __future__ import annotations

import random

import pytest
from miniature import PACKAGE, files

from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.weaver import weave


def test_an_error_says_the_place_what_is_wrong_and_what_to_do():
    assert str(LoomError("wrong", "fragments/a.py:3", "Fix it.")) == "fragments/a.py:3: wrong\n  Fix it."
    assert str(LoomError("wrong", remedy="Fix it.")) == "wrong\n  Fix it."
    assert str(LoomError("wrong")) == "wrong"


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
def test_a_remedy_names_what_is_most_alike_or_all_that_there_is(name, known, remedy):
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
SCRAPS = ["\x00", "\t", "\\", '"""', *"()[]:=*,@;#' \n\ré\u2028\x0c", "{%", "{{", "}}", "  ", "**"]
SCRAPS += ["point(", "emit(x)\n", "yield x\n", "return", "async ", "lambda x: ", "x = "]


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


def truncated(text: str, chance: random.Random) -> list[str]:
    return [text[:end] for end in range(0, len(text), max(len(text) // 12, 1))]


def with_scraps(text: str, chance: random.Random) -> list[str]:
    made = []
    for _ in range(12):
        other = text
        for _ in range(chance.randint(1, 3)):
            start = chance.randrange(len(other) + 1)
            end = min(len(other), start + chance.choice([0, 0, 0, 1, 5, 20]))
            other = other[:start] + chance.choice(SCRAPS) + other[end:]
        made.append(other)
    return made


def in_another_order(text: str, chance: random.Random) -> list[str]:
    lines = text.splitlines(keepends=True)
    return ["".join(chance.sample(lines, len(lines))) for _ in range(4)]


def random_bytes(text: str, chance: random.Random) -> list[str]:
    return [chance.randbytes(length).decode("utf-8", "replace") for length in (1, 10, 100, 1000)]


@pytest.mark.parametrize("change", [truncated, with_scraps, in_another_order, random_bytes])
@pytest.mark.parametrize("path", sorted(GOOD))
def test_whatever_a_source_holds_gives_a_package_or_an_error(path, change):
    assert try_to_weave(GOOD)
    results = [try_to_weave(GOOD | {path: text}) for text in change(GOOD[path], random.Random(path))]
    assert False in results or change is in_another_order or path.endswith(("jinja", "target.toml"))
    assert not try_to_weave({other: text for other, text in GOOD.items() if other != path})


LONG = [
    "x = " + "(" * 500 + ")" * 500,
    "x = " + " + ".join(["1"] * 5000),
    "x = " + "-" * 20_000 + "1",
    "x = 1" + "0" * 5000,
]


@pytest.mark.parametrize("text", LONG)
def test_too_deep_or_too_long(text):
    try_to_weave(GOOD | {"fragments/model/host.py": f"{HOST}{text}\n"})


@pytest.mark.parametrize("words", ["a = " + "[" * 5000, "a" + ".a" * 5000 + " = 1"])
def test_deep_toml(words):
    assert not try_to_weave(GOOD | {"targets/any/target.toml": words})
