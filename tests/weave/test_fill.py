"""The fill operator, by what goes in and what comes out."""

from __future__ import annotations

import pytest
from miniature import refused, tidy, woven

from generator.code.traced import Traced
from generator.weave.fill import fill

SETTINGS = {
    "gated": True,
    "kind": "silu",
    "heads": 4,
    "size": 65536,
    "offset": -1,
    "ratio": 0.5,
    "infinite": float("inf"),
    "quoted": 'don\'t "stop"',
    "axes": ["data", "fsdp"],
    "table": {"batch": ["data"], "embed": "fsdp"},
}


def filled(text: str) -> str:
    return woven(SETTINGS, host=text)


class TestLiterals:
    """`setting("name")` becomes what the architecture or the target says."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('setting("kind")', '"silu"'),
            ('setting("gated")', "True"),
            ('setting("size") // 2', "65_536 // 2"),
            ('setting("offset") ** 2', "(-1) ** 2"),
            ('setting("heads").bit_length()', "(4).bit_length()"),
            ('setting("ratio")', "0.5"),
            ('setting("infinite")', 'float("inf")'),
            ('setting("quoted")', "'don\\'t \"stop\"'"),
            ('setting("axes")', '["data", "fsdp"]'),
            ('setting("table")["batch"]', '{"batch": ["data"], "embed": "fsdp"}["batch"]'),
            ("f\"{setting('kind')} of {setting('heads')}\"", "f\"{'silu'} of 4\""),
            ("f\"{setting('offset'):+}, {setting('offset')}, {setting('offset')=}\"", 'f"{(-1):+}, -1, {(-1)=}"'),
            ('f(setting("kind"), heads=setting("heads"))', 'f("silu", heads=4)'),
        ],
    )
    def test_value(self, before, after):
        assert filled(f"X = {before}\n") == f"X = {after}\n"

    def test_a_literal_means_what_the_setting_is(self):
        for name, value in SETTINGS.items():
            assert eval(fill(Traced.copy(f'setting("{name}")\n', "p"), SETTINGS).text) == value


class TestBranches:
    """A branch on settings is decided: one side stays, the test goes."""

    BRANCH = """
        def f(x):
            if {test}:
                # the one
                y = 1
            elif {other}:
                y = 2
            else:
                y = 3  # the last
            return y
    """

    @pytest.mark.parametrize(
        ("test", "other", "body"),
        [
            ('setting("gated")', 'setting("gated")', ["# the one", "y = 1"]),
            ('not setting("gated")', 'setting("gated")', ["y = 2"]),
            ('setting("kind") == "gelu"', 'setting("kind") in ("relu", "gelu")', ["y = 3  # the last"]),
            ('setting("heads") >= 4 and setting("offset") < 0', "x", ["# the one", "y = 1"]),
            (
                'setting("kind") != "silu" or setting("kind") not in ["silu"]',
                'setting("heads") <= 3',
                ["y = 3  # the last"],
            ),
            ('setting("heads") < 4 or setting("heads") > 4', 'setting("heads") <= 4', ["y = 2"]),
            ('not setting("gated")', "x", ["if x:", "    y = 2", "else:", "    y = 3  # the last"]),
            ("x", 'setting("gated")', ["if x:", "    # the one", "    y = 1", "else:", "    y = 2"]),
            ("x", 'not setting("gated")', ["if x:", "    # the one", "    y = 1", "else:", "    y = 3  # the last"]),
        ],
    )
    def test_if(self, test, other, body):
        lines = ["def f(x):", *(f"    {line}" for line in body), "    return y"]
        assert filled(self.BRANCH.format(test=test, other=other)) == "\n".join(lines) + "\n"

    def test_nested(self):
        assert filled("""
            def f(x):
                if setting("gated"):
                    if setting("kind") == "silu":
                        return x * setting("heads")
                    return 0
                return 1
            """) == tidy("""
            def f(x):
                return x * 4
                return 0
                return 1
            """)

    def test_nothing_is_left(self):
        assert filled('def f(x):\n    if not setting("gated"):\n        x = 1\n') == "def f(x):\n    pass\n"
        assert filled('def f(x):\n    if not setting("gated"):\n        x = 1\n    return x\n') == (
            "def f(x):\n    return x\n"
        )

    def test_expressions(self):
        assert filled('def f(x):\n    return (x + 1 if setting("gated") else x) * 2\n') == (
            "def f(x):\n    return (x + 1) * 2\n"
        )
        assert filled('A = [1 if not setting("gated") else 2, x if y else setting("heads")]\n') == (
            "A = [2, x if y else 4]\n"
        )

    def test_a_branch_on_more_than_settings_is_left_to_the_package(self):
        assert filled('def f(x):\n    if setting("gated") and x:\n        return 1\n') == (
            "def f(x):\n    if True and x:\n        return 1\n"
        )

    def test_in_a_splice(self):
        text = woven(
            SETTINGS, host='def f(x):\n    point("a", x)\n    return x\n', s='@splice("a")\ndef _(x):\n    x = 1\n'
        )
        assert text == "def f(x):\n    x = 1\n    return x\n"


class TestRefused:
    """A setting that is missing, or a test that cannot be decided, is an error with its line."""

    @pytest.mark.parametrize(
        ("before", "message"),
        [
            ('setting("gate")', "no selected architecture or target has the setting 'gate'"),
            ("setting(x)", "setting() takes a name as a string"),
            ("setting()", "setting() takes a name as a string"),
            ('setting("a", "b")', "setting() takes a name as a string"),
            ('1 if setting("gate") else 2', "no selected architecture or target has the setting 'gate'"),
            ('1 if setting("kind") > 2 else 2', "this test of a setting cannot be decided while weaving"),
            ('1 if setting("kind") + 1 else 2', "this test of a setting cannot be decided while weaving"),
        ],
    )
    def test_message(self, before, message):
        text = refused(SETTINGS, host=f"\n\nimport x\n\n\nX = [\n    {before},\n]\n")
        assert text.startswith(f"fragments/model/host.py:5: {message}\n  ")

    def test_nearest_names(self):
        assert refused(SETTINGS, host='X = setting("gate")\n') == (
            "fragments/model/host.py:1: no selected architecture or target has the setting 'gate'\n"
            "  Give it under [settings] in the architecture or the target. Did you mean gated or axes?"
        )

    def test_a_date(self):
        import datetime

        text = refused({"day": datetime.date(2024, 1, 2)}, host='X = setting("day")\n')
        assert text == "fragments/model/host.py:1: 2024-01-02 is not a Python literal\n  Give it as a string."
