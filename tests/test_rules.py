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
        (RULE + "valu = 1\n", 7, "unknown key 'valu' in this rule\n  Did you mean value?"),
        (RULE + "value = 1\n" + RULE + "value = 1\nx = 1\n", 11, "unknown key 'x' in this rule"),
        ("[[structure]]\nvalue = 1\n", 5, "this rule has no setting\n  Add setting, a string or a list."),
        (RULE + "value = 1\n[[structure]]\nvalue = 2\n", 8, "this rule has no setting"),
        (RULE + "given = 1\n", 7, "given is 1, not true or false"),
        ("[[structure]]\nsetting = 1\n", 6, "setting is 1, not a string or a list\n"),
        (RULE + 'given = true\nfills = "x"\n', 8, "fills is 'x', not a table\n"),
        (RULE + "given = true\n[structure.presets]\ntiny = 1\n", 9, "presets.tiny is 1, not a table\n"),
        (RULE, 5, "this rule has neither `value` nor `given`"),
        (RULE + "value = 1\n" + RULE + "given = true\nvalue = 1\n", 8, "this rule has both `value` and `given`"),
        (RULE + 'value = 1\nfragments = ["model/modl"]\n', 8, "unknown fragment 'model/modl'\n  Did you mean"),
        (RULE + 'value = 1\nwithout = ["model/modl"]\n', 8, "unknown fragment 'model/modl'"),
        (RULE + f'value = 1\n{KINDS}fragments = ["model/modl"]\n', 11, "unknown fragment 'model/modl'"),
        (RULE + f"value = 1\n{KINDS}scale = 1\n", 11, "unknown key 'scale' in this kind of layer"),
        (RULE + f"value = 1\n{KINDS.replace('kinds.x', 'kinds.y')}", 9, "unknown kind of layer 'x'"),
        (RULE + "value = 1\n[structure.kinds.x]\n", 8, "no layer is of the kind 'x'"),
        ('[[neutral]]\nsettings = ["a"]\nwhen = "x"\n', 7, "unknown key 'when' in this neutral table"),
        ('[[neutral]]\nsettings = ["a"]\n[[neutral]]\nsettings = "b"\n', 8, "settings is 'b', not a list\n"),
        ("[[neutral]]\n", 5, "this neutral table has no settings"),
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
    ("text", "hf", "covered"),
    [
        ("value = true", {"a": True}, True),
        ("value = true", {"a": False}, False),
        ("value = 2", {}, False),
        ("given = true", {"a": 0}, True),
        ("given = true", {"a": None}, False),
        ("given = false", {"a": None}, True),
        ("given = false", {}, True),
        ("given = false", {"a": False}, False),
        ("value = { kind = 1 }", {"a": {"kind": 1, "more": 2}}, True),
        ("value = { kind = 1 }", {"a": {"kind": 2}}, False),
        ("value = { kind = 1 }", {"a": None}, False),
    ],
)
def test_values(text, hf, covered):
    assert rule(f'setting = "a"\n{text}\n').covers("a", hf) == covered
    assert rule(f'setting = ["b", "a"]\n{text}\n').covers("a", hf) == covered
    assert not rule(f'setting = "b"\n{text}\n').covers("a", hf)


def test_what_fills_settings_of_the_weaver():
    made = rule('setting = "a"\ngiven = true\nsettings = { x = 1 }\nfills = { y = "a", z = "b" }\n')
    assert made.settings_for({"a": 3, "b": 4}) == {"x": 1, "y": 3, "z": 4}


def test_rules_of_an_architecture_come_before_those_of_its_base_and_of_all():
    texts = files(
        MODEL, HEAD + RULE + "value = 1\n", package=files(MODEL)["templates/package.toml"] + RULE + "value = 2\n"
    )
    texts["templates/architectures/mine.toml"] = f'base = "toy"\n{HEAD}{RULE}value = 3\n{RULE}value = 4\n'
    assert [rule.value for rule in select("mine", "any", Library(texts)).rules] == [3, 4, 1, 2]
