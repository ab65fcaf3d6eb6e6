"""The link operator: fragments of one package meet by name."""

from __future__ import annotations

from itertools import permutations

import pytest
from miniature import PACKAGE, package, refused_package

MODEL = """
    from generator.language.roles import attend

    def model(x):
        return attend(x) + helper(x)

    def helper(x):
        return x

    def unused(x):
        return missing(x)
"""
PLAIN = "def attend(x):\n    return x\n"


def definitions(text: str) -> list[str]:
    return [line.split("(")[0].removeprefix("def ") for line in text.splitlines() if line.startswith("def ")]


class TestNames:
    """A name is linked to the one selected fragment that defines it; what nothing reaches is left out."""

    def test_reached(self):
        text = package({"model/model": MODEL, "model/plain": PLAIN}).files["model.py"]
        assert definitions(text) == ["attend", "model", "helper"]
        assert "missing" not in text

    def test_a_choice_of_fragment_is_a_choice_of_definition(self):
        fast = package({"model/model": MODEL, "model/fast": "def attend(x):\n    return x * 2\n"}).files["model.py"]
        assert "def attend(x):\n    return x * 2\n" in fast

    def test_across_files(self):
        train = (
            "import os\nfrom generator.language.roles import attend\n\ndef loss(x):\n    return os.fspath(attend(x))\n"
        )
        made = package(
            {"model/model": MODEL, "model/plain": PLAIN, "train/loss": train},
            package=PACKAGE.replace('"model"', '"model", "loss"', 1),
        )
        assert "import os\n\nfrom .model import attend\n" in made.files["train.py"]
        assert made.files["__init__.py"].endswith(
            'from .model import model\nfrom .train import loss\n\n__all__ = ["loss", "model"]\n'
        )

    def test_an_import_of_roles_in_a_function_stays_there(self):
        """And is from the file that defines the role; other files may import this one."""
        late = "def loss(x):\n    x += 1\n    # late\n    from generator.language.roles import attend\n\n    return attend(x)\n"
        made = package(
            {"model/model": MODEL, "model/plain": PLAIN, "train/loss": late},
            package=PACKAGE.replace('"model"', '"model", "loss"', 1),
        )
        assert made.files["train.py"].endswith('"""\n\n\n' + late.replace("generator.language.roles", ".model"))

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ('def model(x: "Kind | None"):\n    return x\n\nclass Kind:\n    pass\n', "class Kind:"),
            ('def model(x: "two words"):\n    return x\n', 'x: "two words"'),
            ("from math import pow\n\ndef model(x):\n    return pow(x, 2)\n", "from math import pow\n"),
        ],
        ids=["quoted annotation", "a note for an annotation", "an import that hides a builtin"],
    )
    def test_names_that_are_there(self, text, line):
        assert line in package({"model/model": text}).files["model.py"]

    def test_each_file_has_its_own_main(self):
        main = "def main():\n    print({})\n\nif __name__ == '__main__':\n    main()\n"
        made = package(
            {"model/model": "def model():\n    pass\n" + main.format(1), "train/train": main.format(2)},
        )
        assert "print(1)" in made.files["model.py"] and "print(2)" in made.files["train.py"]

    def test_the_order_of_selection_does_not_change_what_is_reached(self):
        parts = {"model/model": MODEL, "model/plain": PLAIN, "model/more": "def more():\n    pass\n"}
        for order in permutations(parts.items()):
            assert {*definitions(package(dict(order)).files["model.py"])} == {"attend", "helper", "model"}


class TestRefused:
    """A name that is defined nowhere, or twice, is an error that names the fragments."""

    @pytest.mark.parametrize(
        ("others", "message"),
        [
            (
                {},
                "fragments/model/model.py:4: model/model uses attend, which no selected fragment defines\n"
                "  Define it or import it.",
            ),
            (
                {"model/plain": PLAIN, "model/fast": f"\n{PLAIN}"},
                "fragments/model/fast.py:1: model/fast defines attend, which model/plain (fragments/model/plain.py:1) "
                "also defines\n  Select one of the two fragments, or give one of the names a new one.",
            ),
            (
                {"model/model": "from os import sep\n\ndef model():\n    return sep\n", "model/b": "sep = 1\n"},
                "fragments/model/model.py:1: sep is imported here from os.sep, and model/b "
                "(fragments/model/b.py:1) defines sep\n  Give one of them another name.",
            ),
        ],
        ids=["nobody", "two", "defined and imported"],
    )
    def test_message(self, others, message):
        assert refused_package({"model/model": MODEL} | others) == message

    def test_nobody_that_is_selected(self):
        text = refused_package({"model/model": MODEL}, **{"fragments/model/plain.py": PLAIN})
        assert text.endswith("\n  Select a fragment that defines it: model/plain (fragments/model/plain.py).")

    def test_imported_from_two_places(self):
        one = "from os import sep\n\ndef model():\n    return sep, attend(1)\n"
        two = "from sys import path as sep\n\ndef attend(x):\n    return sep\n"
        text = refused_package({"model/model": one, "model/two": two})
        assert "sep is imported from" in text
        assert "fragments/model/model.py:1" in text and "fragments/model/two.py:1" in text
        assert "Import one of them under another name." in text

    @pytest.mark.parametrize("name", ["compile", "Config", "PRESETS", "sum"])
    def test_names_with_a_meaning_everywhere(self, name):
        text = refused_package(
            {"model/model": f"def {name}(x):\n    return x\n" if name != "Config" else "Config = 1\n"}
        )
        assert text.startswith(f"fragments/model/model.py:1: model/model defines {name}, which ")
        assert "Give it another name" in text

    @pytest.mark.parametrize("body", ['return point("a")', "return [emit(x) for x in y]", "return proceed()"])
    def test_words_of_the_weaver_in_an_expression(self, body):
        text = refused_package({"model/model": f"def model(y):\n    {body}\n"})
        word = body.split("(")[0].split("[")[-1].removeprefix("return ")
        assert text.startswith("fragments/model/model.py:2: ")
        assert word in text

    def test_an_export_that_nobody_defines(self):
        text = refused_package({"model/plain": PLAIN})
        assert text == (
            "templates/package.toml:1: the package exports model, which no selected fragment defines\n  Remove it."
        )
