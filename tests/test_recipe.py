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
            **{"kind": "fast", "heads": 2, "base": 1, "has_kinds": False},
            **{"period": 1, "whole_period": 1, "few_layers": 2},
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


class TestUnknown:
    """An unknown name is an error that gives the nearest ones."""

    def test_architecture(self):
        assert refused_selection("tony", "any") == "unknown architecture 'tony'\n  Did you mean toy?"

    def test_target(self):
        assert refused_selection("toy", "gpu") == "unknown target 'gpu'\n  There is any."

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (
                {"target": 'title = "T"\nfragments = [\n    "model/mode",\n]\n'},
                "targets/any/target.toml:3: unknown fragment 'model/mode'\n  Did you mean model/model?",
            ),
            (
                {"architecture": 'title = "A"\n[presets.small]\nwidht = 8\n'},
                "templates/architectures/toy.toml:6: no selected fragment has the field 'widht'\n  Did you mean width?",
            ),
            (
                {"architecture": 'title = "A"\npreset = 1\n'},
                "templates/architectures/toy.toml:5: unknown key preset\n  Did you mean presets or without_presets?",
            ),
            (
                {"target": 'title = "A"\n[fragment]\nx = 1\n'},
                "targets/any/target.toml:2: unknown key fragment\n  Did you mean fragments or requirements?",
            ),
            (
                {"package": PACKAGE + "[requirement]\n"},
                "templates/package.toml:13: unknown key requirement\n  Did you mean requirements or fragments?",
            ),
        ],
    )
    def test_name_in_a_file(self, options, expected):
        assert refused_package(MODEL, **options) == expected


class TestToml:
    """A TOML file that is none, or holds something else than it should."""

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ('title = "T"\nfragments = [1,, 2]\n', ":2: not valid TOML"),
            ('title = "T"\nfragments = [\n"a",\n', ":3: not valid TOML"),
            ('title = "T"\nfragments = "model/rope"\n', ":2: fragments is 'model/rope', not a list\n  Give a list."),
            ('title = "T"\nfragments = [1]\n', ":2: fragments[0] is 1, not a string\n  Give a string."),
            ("title = 3\n", ":1: title is 3, not a string"),
            ('title = "T"\n[presets]\nsmall = 1\n', ":3: presets.small is 1, not a table\n"),
            ("", ": title is missing\n  Add title, a string."),
        ],
    )
    def test_target(self, text, error):
        found = refused_package(MODEL, target=text)
        assert found.startswith(f"targets/any/target.toml{error}") and "\n  " in found

    @pytest.mark.parametrize("key", ["exports", "folders", "documentation", "config"])
    def test_package_without(self, key):
        lines = PACKAGE.split("\n\n")
        text = "\n\n".join(part for part in lines if not part.lstrip("[").startswith(key))
        assert refused_package(MODEL, package=text).startswith(f"templates/package.toml: {key} is missing\n  Add {key}")

    def test_missing_file(self):
        texts = files(MODEL)
        del texts["templates/package.toml"]
        with pytest.raises(LoomError, match=r"^templates/package.toml: this file is missing\n  Restore it\.$"):
            weave("toy", "any", Library(texts))

    def test_twice(self):
        text = refused_package(MODEL, target='title = "T"\nfragments = ["model/model"]\n')
        assert text == (
            "targets/any/target.toml:2: fragment 'model/model' is also selected at templates/architectures/toy.toml:2\n"
            "  Remove one."
        )


class TestCompany:
    """`requires` and `excludes` hold for what is selected; names may leave out the folder."""

    @pytest.mark.parametrize("name", ["rope", "model/rope"])
    def test_requires(self, name):
        needy = {"model/model": f'requires("{name}")\n\ndef model():\n    return 1\n'}
        text = refused_package(needy, **{"fragments/model/rope.py": ROPE["model/rope"]})
        assert text == (
            f"templates/architectures/toy.toml:2: model/model requires {name}, which is not selected\n"
            f'  Add "{name}" to the fragments, or take "model/model" away.'
        )
        assert package(needy | ROPE)

    @pytest.mark.parametrize("names", ["rope or alibi", "alibi or model/rope"])
    def test_requires_one_of_two(self, names):
        alibi = {"model/alibi": "def alibi():\n    return 1\n"}
        files = {f"fragments/{name}.py": text for name, text in (ROPE | alibi).items()}
        needy = {"model/model": f'requires("{names}")\n\ndef model():\n    return 1\n'}
        text = refused_package(needy, **files)
        assert f"model/model requires {names}, which is not selected" in text
        assert f'Add "{names.split(" or ")[0]}" to the fragments' in text
        assert package(needy | ROPE, **files) and package(needy | alibi, **files) and package(needy | ROPE | alibi)
        unknown = {"model/model": 'requires("alibi or rop")\n\ndef model():\n    return 1\n'}
        assert "requires an unknown fragment 'rop'\n  Did you mean rope?" in refused_package(unknown | ROPE | alibi)

    def test_excludes(self):
        shy = {"model/model": 'excludes("rope")\n\ndef model():\n    return 1\n'}
        assert refused_package(shy | ROPE) == (
            "templates/architectures/toy.toml:2: model/model excludes rope, selected at "
            "templates/architectures/toy.toml:3\n"
            "  Take one of them away, or for one target under [targets.NAME] of the architecture."
        )
        assert package(shy, **{"fragments/model/rope.py": ROPE["model/rope"]})

    def test_unknown(self):
        text = refused_package({"model/model": '\n\nrequires("model/model", "rop")\n', **ROPE})
        assert text == "fragments/model/model.py:1: requires an unknown fragment 'rop'\n  Did you mean rope?"


class TestConfig:
    """The fields of all fragments make one Config."""

    def test_clash(self):
        other = {"model/rope": "class Config:\n    # how wide\n    width: int = 2\n"}
        assert refused_package(MODEL | other) == (
            "fragments/model/rope.py:3: model/rope and model/model (fragments/model/model.py:4) both "
            "give Config a field width\n"
            "  Select one of them, or give one field another name."
        )

    def test_a_preset_that_leaves_out_a_field_without_default(self):
        needy = {"model/model": "class Config:\n    width: int\n\n\ndef model():\n    return 1\n"}
        assert refused_package(needy, architecture='title = "A"\n\n[presets.small]\n') == (
            "templates/architectures/toy.toml:6: the preset 'small' leaves out width\n  Add width to this preset."
        )

    def test_a_date_in_a_preset(self):
        text = refused_package(MODEL, architecture='title = "A"\n[presets.small]\nwidth = 2024-01-02\n')
        assert text == "templates/architectures/toy.toml:6: 2024-01-02 is not a Python literal\n  Give it as a string."


class TestTemplates:
    """Templates are rendered strictly."""

    PACKAGE = PACKAGE + '[templates]\n"R.md" = "templates/r.jinja"\n'

    @pytest.mark.parametrize(
        ("template", "expected"),
        [
            ("one\ntwo {% if %}\n", "templates/r.jinja:2: not a valid template: "),
            (
                "one\n\n{{ titel }}\n",
                "templates/r.jinja:3: the template uses a name that is not there: 'titel' is undefined",
            ),
            ("one\n{{ 1 / 0 }}\n", "templates/r.jinja:2: the template fails: ZeroDivisionError: division by zero"),
        ],
    )
    def test_line(self, template, expected):
        text = refused_package(MODEL, package=self.PACKAGE, **{"templates/r.jinja": template})
        assert text.startswith(expected)
        assert "\n  " in text

    def test_missing(self):
        assert refused_package(MODEL, package=self.PACKAGE) == (
            "templates/r.jinja: this template is missing\n  It is asked for as R.md; write it, or drop the line."
        )

    def test_line_of_a_template_in_the_package_file(self):
        text = refused_package(MODEL, package=PACKAGE + '"model.py" = """\nThe model\nof {{ nothing }}."""\n')
        assert text.startswith("templates/package.toml:15: the template uses a name that is not there: 'nothing'")

    def test_rendered(self):
        made = package(MODEL, package=self.PACKAGE, **{"templates/r.jinja": "{{ title }} {{ fields[0].meaning }}\n"})
        assert made.files["R.md"] == "Toy of the stream\n"

    def test_a_requirement_that_is_missing(self):
        text = refused_package({"model/model": "import numpy\n\ndef model():\n    return numpy\n"})
        assert text == (
            "templates/package.toml: model.py imports numpy, which no requirement covers\n"
            '  Add `numpy = "DISTRIBUTION>=VERSION"` under [requirements].'
        )
