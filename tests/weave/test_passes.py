"""gen build --after PASS: the text between two passes of weaving, with the source of each line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from miniature import files

from generator.commands.after import text_after
from generator.disk.lock import Combination
from generator.errors import LoomError
from generator.recipe.library import Library

MODEL = """
    "Model."
    from generator.language import point, setting

    def helper(x):
        if setting("wide"):
            point("helper.end", x)
        return x

    def model(x):
        return helper(x)
"""
SPLICE = """
    "Splice."
    from generator.language import provide, splice

    @provide("model")
    def scale(x):
        return x + 1

    @splice("helper.end")
    def _(x, scale):
        x = x * scale
"""
HOST, ENDING = "fragments/model/host.py", "fragments/model/ending.py"
EXPECTED = {  # the lines of `helper` after each pass, without headings
    "state": [f'{HOST}:5 |     if setting("wide"):', f"{ENDING}:10 |     x = x * scale"],
    "fill": [f'{HOST}:6 |     point("helper.end", x)'],
    "splice": [f"{HOST}:4    | def helper(x):", f"{ENDING}:10 |     x = x * scale", f"{HOST}:7    |     return x"],
    "thread": [f"{HOST}:4    | def helper(x, scale):  <- {ENDING}:5"],
    "tidy": [f"{HOST}:7 |     return x * scale  <- {ENDING}:10"],
    "format": [f"{HOST}:4 | def helper(x, scale):  <- {ENDING}:5"],
}


def test_text_after_each_pass():
    texts = files({"model/host": MODEL, "model/ending": SPLICE}, 'title = "Toy"\n[settings]\nwide = true\n')
    project = SimpleNamespace(library=lambda: Library(texts))
    toy = Combination("toy", "any", ())

    def after(name: str, only: str | None = "helper") -> list[str]:
        return text_after(project, toy, name, only).splitlines()

    for name, lines in EXPECTED.items():
        assert {*lines} <= {*after(name)}, "\n".join(after(name))
    assert "== model.py helper.end" in after("fill") and len(after("fill")) == 6
    assert after("thread", "model.py")[0] == "== model.py helper" and "== model.py" in after("link", "model.py")
    assert {"== config.py", "== model.py"} < {*after("render", None)}
    for name, only, remedy in (
        ("spice", None, "They are state, fill, splice, layers, thread, tidy, link, format, render."),
        ("thread", "helpers", "Did you mean helper?"),
    ):
        with pytest.raises(LoomError) as raised:
            after(name, only)
        assert raised.value.remedy == remedy
