"""TOML files and config.json with any value replaced, deleted, renamed or nested."""

from __future__ import annotations

import ast
import json
import os
import random
import tomllib
from pathlib import Path

import pytest
import tomli_w
from miniature import PACKAGE, files
from selected import mostly_slow
from test_bad_sources import FIELDS, TOY

from generator.checkpoint import fit as fitting
from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

ALL = "ALL_BAD_INPUT" in os.environ
RICH = files(
    FIELDS
    | {
        "model/block": '"""Block."""\n\nfrom generator.language import splice\n\n\ndef block(x):\n    return x\n',
        "train/loop": '"""Loop."""\n\n\ndef loop():\n    return setting("deep")\n',
    },
    architecture="""
title = "Toy"
source = "Somebody 2020"
model_type = "toy"
reference = "Toy"
[settings]
deep = [1, { a = "b" }]
[presets.tiny]
layers = 2
shape = [1, 2]
[[layers]]
pattern = ["a", "b"]
count = "config.layers // 2"
[kinds.a]
where = "layer < hf['x']"
[kinds.b]
fragments = ["model/block2"]
[targets.any]
fragments = ["train/loop2"]
[[structure]]
setting = "x"
value = { y = 1 }
fragments = ["model/block"]
fills = { deep = "x" }
[[structure.layers]]
pattern = ["a"]
[structure.kinds.a]
[structure.presets.tiny]
width = 3
[[neutral]]
settings = ["z"]
where = "hf.get('z') is None"
""",
    target='title = "T"\n[settings]\nfast = true\n[presets.tiny]\nwidth = 4\n[requirements]\nnumpy = "numpy>=2"\n'
    '[extras]\nx = ["numpy>=2"]\n[templates]\n"a/R.md" = "templates/r.jinja"\n',
    package='exports = ["model", "PRESETS", "loop"]\n'
    + PACKAGE.partition("\n")[2]
    + '[templates]\n"x.toml" = "templates/x.jinja"\n',
    **{
        "templates/r.jinja": "# {{ title }}\n{% for f in fields %}{{ f.name }}\n{% endfor %}",
        "templates/x.jinja": 'title = "{{ title }}"\nextras = {{ extras | list }}\n',
        "fragments/model/block2.py": '"""Block."""\n\n\ndef block2():\n    return 1\n',
        "fragments/train/loop2.py": '"""Loop."""\n\n\ndef loop2():\n    return 1\n',
    },
)
OTHERS = [0, -1, 2.5, True, "x", "", 'a"b\\\n', "\x00", "🧵", "../x", [], ["x"], [[1]], {}, {"x": 1}, {"x": {"y": "z"}}]
OTHERS += [10**30, float("inf"), float("nan"), "x" * 5000]


def places(value: object, keys: tuple = ()):
    """The keys that lead to each value in tables and lists, of long lists to the first and the last."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, list) and len(value) > 8:
        items = (0, value[0]), (len(value) - 1, value[-1])
    for key, inner in items:
        yield (*keys, key)
        yield from places(inner, (*keys, key))


def mutants(value: dict, others: list, seed: str, most: int):
    """Copies with one value replaced, deleted, renamed or nested: `most` of them, or all with ALL_BAD_INPUT."""
    chance = random.Random(seed)
    changes = [(keys, change) for keys in places(value) for change in range(len(others) + 3)]
    for keys, change in changes if ALL else chance.sample(changes, min(most, len(changes))):
        other = json.loads(json.dumps(value))
        table = other
        for key in keys[:-1]:
            table = table[key]
        key = keys[-1]
        if change < len(others):
            table[key] = others[change]
        elif change == len(others):
            del table[key]
        elif change == len(others) + 1 and isinstance(table, dict):
            table[chance.choice(["", "x y", "a.b", '"', "🧵", "x"])] = table.pop(key)
        else:
            deep = table[key]
            for _ in range(chance.choice([1, 30])):
                deep = chance.choice([[deep], {"x": deep}])
            table[key] = deep
        yield keys, other


def check(package) -> None:
    """A package that came out is whole: its files are what they say, and its presets make a Config."""
    for path, text in package.files.items():
        assert ".." not in path and not path.startswith("/")
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
    exec(compile(package.files["config.py"], "config.py", "exec", dont_inherit=True), {"__name__": "config"})


@pytest.mark.parametrize("path", [TOY, "targets/any/target.toml", "templates/package.toml"])
def test_toml(path):
    weave("toy", "any", Library(RICH))
    refused = 0
    for keys, tables in mutants(tomllib.loads(RICH[path]), OTHERS, path, 60):
        try:
            check(weave("toy", "any", Library(RICH | {path: tomli_w.dumps(tables)})))
        except LoomError as error:
            refused += 1
            assert error.where and len(str(error)) < 2000, keys
    assert refused > 20


PUBLISHED = {
    entry["config"]["model_type"]: entry["config"]
    for path in sorted((Path(__file__).parent / "families/published").glob("*.json"))
    for entry in json.loads(path.read_text()).values()
}
ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Library.read([ROOT])
FEW = "deepseek_v3", "gemma3_text", "gpt_oss", "llama"


@pytest.mark.parametrize("family", mostly_slow(PUBLISHED, *FEW))
def test_config_json(family, tmp_path, monkeypatch):
    """`gen new` writes what reads as it was written and makes a Config that the package takes, or says why not."""
    from generator.commands.new import new
    from generator.disk.project import Project

    woven = {}

    def weave_once(name, target, library):
        text = library.files[f"templates/architectures/{name}.toml"]
        return woven[text] if text in woven else woven.setdefault(text, weave(name, target, library))

    monkeypatch.setattr(fitting, "weave", weave_once)
    project = Project((ROOT, tmp_path), tmp_path, tmp_path / "generated")
    monkeypatch.setattr(Project, "library", lambda project: LIBRARY)
    refused = 0
    for keys, hf in mutants(PUBLISHED[family], [*OTHERS, None, 3, 10**9], family, 8):
        (tmp_path / "config.json").write_text(json.dumps(hf))
        try:
            _, path, _ = new(project, tmp_path / "config.json", "cpu", "mine")
        except LoomError as error:
            refused += 1
            assert error.where and len(str(error)) < 20_000, keys
            continue
        tables = tomllib.loads(path.read_text())
        assert all(value is not None for value in tables["presets"]["mine"].values())
        path.unlink()  # the same name for all, whose packages are woven once
    assert refused
