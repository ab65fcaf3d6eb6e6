"""What an architecture file may say of checkpoints: rules and neutral settings, and what is wrong with them."""

from __future__ import annotations

import pytest
from miniature import files, refused_package

from generator.recipe.library import Library
from generator.recipe.recipe import select

MODEL = {"model/model": '"""The model."""\n\ndef model():\n    return 1\n'}
HEAD = 'title = "A"\n'  # line 4 of the file, after the fragments
RULE = '[[structure]]\nsetting = "a"\n'  # lines 5 and 6
KINDS = '[[structure.layers]]\npattern = ["x"]\n[structure.kinds.x]\n'


@pytest.mark.parametrize(
    ("rules", "line", "message"),
    [
        (RULE + "valu = 1\n", 7, "unknown key structure[0].valu\n  Did you mean value?"),
        (RULE + "value = 1\n" + RULE + "value = 1\nx = 1\n", 11, "unknown key structure[1].x"),
        ("[[structure]]\nvalue = 1\n", 5, "structure[0].setting is missing\n  Add setting, a string or a list."),
        (RULE + "given = 1\n", 7, "structure[0].given is 1, not true or false"),
        ("[[structure]]\nsetting = 1\n", 6, "structure[0].setting is 1, not a string or a list\n"),
        (RULE + "given = true\n[structure.presets]\ntiny = 1\n", 9, "structure[0].presets.tiny is 1, not a table\n"),
        (RULE, 5, "this rule has neither `value` nor `given`"),
        (RULE + "value = 1\n" + RULE + "given = true\nvalue = 1\n", 8, "this rule has both `value` and `given`"),
        (RULE + 'value = 1\nfragments = ["model/modl"]\n', 8, "unknown fragment 'model/modl'\n  Did you mean"),
        (RULE + 'value = 1\nwithout = ["model/modl"]\n', 8, "unknown fragment 'model/modl'"),
        (RULE + f'value = 1\n{KINDS}fragments = ["model/modl"]\n', 11, "unknown fragment 'model/modl'"),
        (RULE + f"value = 1\n{KINDS}scale = 1\n", 11, "unknown key structure[0].kinds.x.scale"),
        (RULE + f"value = 1\n{KINDS.replace('kinds.x', 'kinds.y')}", 9, "unknown kind of layer 'x'"),
        (RULE + "value = 1\n[structure.kinds.x]\n", 8, "no layer is of the kind 'x'"),
        (RULE + 'value = 1\n[structure.kinds."x y"]\n', 8, "structure[0].kinds.x y is 'x y', not a name in Python"),
        ('[[neutral]]\nsettings = ["a"]\n[[neutral]]\nsettings = "b"\n', 8, "neutral[1].settings is 'b', not a list\n"),
    ],
)
def test_refused(rules, line, message):
    text = refused_package(MODEL, architecture=HEAD + rules)
    assert text.startswith(f"templates/architectures/toy.toml:{line}: {message}")
    assert "\n  " in text


def rule(text: str):
    """The only rule of an architecture."""
    (found,) = select("toy", "any", Library(files(MODEL, HEAD + "[[structure]]\n" + text))).rules
    return found


@pytest.mark.parametrize(
    ("text", "covered", "others"),
    [
        ("value = true", [{"a": True}], [{"a": False}, {}]),
        ("given = true", [{"a": 0}], [{"a": None}]),
        ("given = false", [{"a": None}, {}], [{"a": False}]),
        ("value = { kind = 1 }", [{"a": {"kind": 1, "more": 2}}], [{"a": {"kind": 2}}, {"a": None}]),
    ],
)
def test_values(text, covered, others):
    for hf in (*covered, *others):
        assert rule(f'setting = "a"\n{text}\n').covers("a", hf) == (hf in covered)
        assert rule(f'setting = ["b", "a"]\n{text}\n').covers("a", hf) == (hf in covered)
        assert not rule(f'setting = "b"\n{text}\n').covers("a", hf)


def test_what_fills_settings_of_the_weaver():
    made = rule('setting = "a"\ngiven = true\nsettings = { x = 1 }\nfills = { y = "a", z = "b" }\n')
    assert made.settings_for({"a": 3, "b": 4}) == {"x": 1, "y": 3, "z": 4}


def test_rules_of_an_architecture_come_before_those_of_its_base_and_of_all():
    package = files(MODEL)["templates/package.toml"] + RULE + "value = 2\n"
    texts = files(MODEL, HEAD + RULE + "value = 1\n", package=package)
    texts["templates/architectures/mine.toml"] = f'base = "toy"\n{HEAD}{RULE}value = 3\n{RULE}value = 4\n'
    assert [rule.table.value for rule in select("mine", "any", Library(texts)).rules] == [3, 4, 1, 2]
