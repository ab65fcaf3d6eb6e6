"""What takes part in a package: architectures, targets, the package file, and what is wrong with them."""

from __future__ import annotations

import pytest
from miniature import PACKAGE, files, package, refused_package

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weaver import weave

MODEL = {
    "model/model": '''
        """The model."""

        class Config:
            width: int = 1  # of the stream
            layers: int = 1

        def model():
            return 1
    '''
}
ROPE = {"model/rope": '"""Rope."""\n\nimport math\n\ndef rope():\n    return math.pi\n'}


def refused_selection(architecture: str, target: str, **others: str) -> str:
    with pytest.raises(LoomError) as raised:
        select(architecture, target, Library(files(MODEL, **others)))
    return str(raised.value)


class TestSelection:
    """The architecture's fragments, then the target's, then those of every package."""

    TARGET = """\
title = "T"
fragments = ["model/rope"]
[settings]
kind = "fast"
[presets.small]
layers = 3
[presets.huge]
x = 1
"""
    ARCHITECTURE = 'title = "A"\n[settings]\nkind = "slow"\nheads = 2\n[presets.small]\nwidth = 8\nlayers = 2\n'

    def recipe(self):
        texts = files(MODEL, self.ARCHITECTURE, self.TARGET, PACKAGE + "[settings]\nkind = 0\nbase = 1\n")
        return select("toy", "any", Library(texts | {"fragments/model/rope.py": ROPE["model/rope"]}))

    def test_order(self):
        assert [fragment.name for fragment in self.recipe().fragments] == ["model/model", "model/rope"]

    def test_settings_of_the_target_win(self):
        assert self.recipe().settings == {
            **{"kind": "fast", "heads": 2, "base": 1, "has_kinds": False, "one_stack": True},
            **{"period": 1, "whole_period": 1, "layers_outside": 0, "least_layers": 1, "few_layers": 2},
            **{"architecture": "toy", "target": "any", "package": "toy_any", "title": "A"},
        }

    @pytest.mark.parametrize(
        ("layers", "few"),
        [
            ('[[layers]]\npattern = ["a"]\n', 2),
            ('[[layers]]\npattern = ["a", "a", "a"]\n', 3),
            ('[[layers]]\nname = "first"\npattern = ["a"]\ncount = "1"\n[[layers]]\npattern = ["a"]\ncount = "4"\n', 5),
        ],
    )
    def test_few_layers_have_all_kinds(self, layers, few):
        """A whole period; where several groups share the layers, those of the tiny preset."""
        architecture = 'title = "A"\n' + layers + "[kinds.a]\n[presets.tiny]\nlayers = 5\n"
        settings = select("toy", "any", Library(files(MODEL, architecture))).settings
        assert settings["few_layers"] == few

    def test_presets_are_the_architecture_s_with_the_target_s_values(self):
        presets = self.recipe().presets
        assert {name: {key: str(where) for key, (_, where) in fields.items()} for name, fields in presets.items()} == {
            "small": {"width": "templates/architectures/toy.toml:9", "layers": "targets/any/target.toml:6"}
        }
        exports = PACKAGE.replace('["model"]', '["model", "PRESETS"]')
        made = package(MODEL, architecture=self.ARCHITECTURE, package=exports).files["config.py"]
        assert 'PRESETS = {\n    "small": Config(\n        width=8,\n        layers=2,\n    ),\n}\n' in made


ARCHITECTURE, TARGET = "templates/architectures/toy.toml", "targets/any/target.toml"
PACKED, TEMPLATE = "templates/package.toml", "templates/r.jinja"
TEMPLATES = PACKAGE + '[templates]\n"R.md" = "templates/r.jinja"\n'
HOST = "\n\ndef model():\n    return 1\n"
PRESET = 'title = "A"\n[presets.small]\n'
IN_TARGET = [
    (
        'title = "T"\nfragments = [\n    "model/mode",\n]\n',
        3,
        "unknown fragment 'model/mode'\n  Did you mean model/model?",
    ),
    ('title = "A"\n[fragment]\nx = 1\n', 2, "unknown key fragment\n  Did you mean fragments or requirements?"),
    ('title = "T"\nfragments = [1,, 2]\n', 2, "not valid TOML"),
    ('title = "T"\nfragments = [\n"a",\n', 3, "not valid TOML"),
    ('title = "T"\nfragments = "x"\n', 2, "fragments is 'x', not a list\n  Give a list."),
    ('title = "T"\nfragments = [1]\n', 2, "fragments[0] is 1, not a string\n  Give a string."),
    ("title = 3\n", 1, "title is 3, not a string"),
    ('title = "T"\n[presets]\nsmall = 1\n', 3, "presets.small is 1, not a table\n"),
    ("", 0, "title is missing\n  Add title, a string."),
    (
        'title = "T"\nfragments = ["model/model"]\n',
        2,
        f"fragment 'model/model' is also selected at {ARCHITECTURE}:2\n  Remove one.",
    ),
]
IN_ARCHITECTURE = [
    (PRESET + "widht = 8\n", 6, "no selected fragment has the field 'widht'\n  Did you mean width?"),
    ('title = "A"\npreset = 1\n', 5, "unknown key preset\n  Did you mean presets or without_presets?"),
    (PRESET + "width = 2024-01-02\n", 6, "2024-01-02 is not a Python literal\n  Give it as a string."),
]
REQUIREMENT = '  Add `numpy = "DISTRIBUTION>=VERSION"` under [requirements].'
IN_PACKAGE = [
    (PACKAGE + "[requirement]\n", 13, "unknown key requirement\n  Did you mean requirements or fragments?"),
    (PACKAGE.partition("\n")[2], 0, "exports is missing\n  Add exports, a list."),
    (
        PACKAGE + '"model.py" = """\nThe model\nof {{ nothing }}."""\n',
        15,
        "the template uses an undefined name: 'nothing'",
    ),
]
IN_TEMPLATE = [
    ("one\ntwo {% if %}\n", 2, "not a valid template: "),
    ("one\n\n{{ titel }}\n", 3, "the template uses an undefined name: 'titel' is undefined"),
    ("one\n{{ 1 / 0 }}\n", 2, "the template fails: ZeroDivisionError: division by zero"),
]
SIZES = 'class ModelConfig:\n    """Sizes."""\n    theta: int = 2\n'
REFUSED = [
    *(({}, {"target": text}, TARGET, *rest) for text, *rest in IN_TARGET),
    *(({}, {"architecture": text}, ARCHITECTURE, *rest) for text, *rest in IN_ARCHITECTURE),
    *(({}, {"package": text}, PACKED, *rest) for text, *rest in IN_PACKAGE),
    *(({}, {"package": TEMPLATES, TEMPLATE: text}, TEMPLATE, *rest) for text, *rest in IN_TEMPLATE),
    (
        *({}, {"package": TEMPLATES}, TEMPLATE, 0),
        "this template is missing\n  It is the template of R.md: write it, or drop the line.",
    ),
    (
        *({"model/rope": "class Config:\n    # how wide\n    width: int = 2\n"}, {}, "fragments/model/rope.py", 3),
        "model/rope and model/model (fragments/model/model.py:4) both give Config a field width\n  Select one of them, or",
    ),
    (
        *({"model/rope": "class ModelConfig:\n    theta: int = 2\n"}, {}, "fragments/model/rope.py", 2),
        "ModelConfig needs one docstring, and no selected fragment gives it\n  Say in one fragment what",
    ),
    (
        *({"model/rope": f"{SIZES}\ndef rope(config: ModelConfig):\n    return config.width\n"}, {}),
        *("fragments/model/rope.py", 6),
        "model/rope reads config.width of ModelConfig, and it is in Config\n  Annotate the parameter with Config, or",
    ),
    (
        *({"model/rope": "from typing import Annotated\n\nclass Config:\n    x: Annotated[int, 1, 9] = 0\n"}, {}),
        *("fragments/model/rope.py", 4),
        "x is 0\n  Give a number from 1 to 9.",
    ),
    (
        *({"model/model": f"class Config:\n    width: int\n{HOST}"}, {"architecture": PRESET}, ARCHITECTURE, 5),
        "the preset 'small' leaves out width\n  Add width to this preset.",
    ),
    (
        *({"model/model": f"import numpy\n{HOST.replace('1', 'numpy')}"}, {}, PACKED, 0),
        f"model.py imports numpy, which no requirement covers\n{REQUIREMENT}",
    ),
]


@pytest.mark.parametrize(("fragments", "texts", "path", "line", "message"), REFUSED)
def test_refused(fragments, texts, path, line, message):
    text = refused_package(MODEL | fragments, **texts)
    assert text.startswith(f"{path}:{line}: {message}" if line else f"{path}: {message}") and "\n  " in text


def test_what_is_not_there():
    assert refused_selection("tony", "any") == "unknown architecture 'tony'\n  Did you mean toy?"
    assert refused_selection("toy", "gpu") == "unknown target 'gpu'\n  There is any."
    texts = files(MODEL)
    del texts["templates/package.toml"]
    with pytest.raises(LoomError, match=r"^templates/package.toml: this file is missing\n  Restore it\.$"):
        weave("toy", "any", Library(texts))


def test_rendered():
    made = package(MODEL, package=TEMPLATES, **{"templates/r.jinja": "{{ title }} {{ fields[0].meaning }}\n"})
    assert made.files["R.md"] == "Toy of the stream\n"


class TestCompany:
    """`requires` and `excludes` hold for what is selected; names may leave out the folder."""

    OTHERS = ROPE | {"model/alibi": "def alibi():\n    return 1\n"}
    FILES = {f"fragments/{name}.py": text for name, text in OTHERS.items()}  # noqa: RUF012

    @pytest.mark.parametrize("names", ["rope", "model/rope", "rope or alibi", "model/rope or alibi"])
    def test_requires(self, names):
        needy = {"model/model": f'requires("{names}"){HOST}'}
        assert refused_package(needy, **self.FILES) == (
            f"{ARCHITECTURE}:2: model/model requires {names}, which is not selected\n"
            f'  Add "{names.split(" or ")[0]}" to the fragments, or take "model/model" away.'
        )
        assert package(needy | ROPE, **self.FILES)
        assert "alibi" not in names or package(needy | {"model/alibi": self.OTHERS["model/alibi"]}, **self.FILES)

    def test_excludes(self):
        shy = {"model/model": f'excludes("rope"){HOST}'}
        assert refused_package(shy | ROPE) == (
            f"{ARCHITECTURE}:2: model/model excludes rope, selected at {ARCHITECTURE}:3\n"
            "  Take one of them away, or for one target under [targets.NAME] of the architecture."
        )
        assert package(shy, **self.FILES)

    @pytest.mark.parametrize("names", ['"model/model", "rop"', '"alibi or rop"'])
    def test_unknown(self, names):
        text = refused_package({"model/model": f"\n\nrequires({names})\n", **self.OTHERS})
        assert text == "fragments/model/model.py:1: requires an unknown fragment 'rop'\n  Did you mean rope?"
