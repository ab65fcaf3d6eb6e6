"""gen pull: edits that go home, edits that are refused, and the reasons; nothing is lost."""

from __future__ import annotations

import json
import re

import pytest
from repository import ARCHITECTURE, SOURCES

from generator.errors import LoomError
from generator.pull.join_points import check_shown_names
from generator.recipe.library import Library

ONE, TWO = "generated/one_any/model.py", "generated/two_any/model.py"
README, TEMPLATE = "generated/one_any/README.md", "templates/README.md.jinja"
NET, SHIFT = "fragments/model/net.py", "fragments/model/shift.py"


def pull(repository, *words: str, code: int = 0) -> dict:
    return json.loads(repository.run("pull", "one_any", "--json", *words, code=code).stdout)


def check_home(repository) -> None:
    """Checks that all edits go home, and that the package is then what a build makes."""
    assert pull(repository, "--apply")["refused"] == []
    repository.run("check")


class TestHome:
    @pytest.mark.parametrize(
        ("old", "new", "source", "in_source"),
        [
            ("math.pi  # up", "math.tau  # up", NET, None),
            ("# up", "# upward", NET, None),
            ("Makes it larger.", "Makes it much larger.", NET, None),
            ("    Twice over.", "    Three times.\n    And once more.", NET, None),
            ("for _ in range(config.depth):", "for _ in range(config.depth + 1):", NET, None),
            ("        x = scale(x)\n", "        x = scale(x)\n        x = x - 1\n", NET, None),
            ('    assert x, "nothing came out"\n', "", NET, None),
            ('"""The whole."""\n', '"""The whole."""\n    x = x + 1\n', NET, None),
            ("    return x + config.width\n", "    x = x + config.width\n    return x\n", NET, None),
            ("y = y * y", "y = y * y * 2", SHIFT, None),
            # `z = y + 0` and `return z` became one line
            ("return y + 0", "return y + 5", NET, ("z = y + 0", "z = y + 5")),
            # a value is filled in
            ("x = x * 2", "x = -x * 2", NET, ("x = x * s", "x = -x * s")),
            (
                "    x = x * 2\n",
                "    x = -x * 2\n    assert x\n",
                NET,
                ('x * setting("gain")\n', '-x * setting("gain")\n    assert x\n'),
            ),
        ],
    )
    def test_edit(self, repository, old, new, source, in_source):
        """It makes just this change of its source; building gives the edit back."""
        repository.replace(ONE, old, new)
        edited, before = repository.package("one_any"), repository.read(source)
        found = pull(repository, "--apply")
        assert (found["home"], found["refused"]) == (1, [])
        assert before.count((in_source or (old, new))[0]) == 1
        assert repository.read(source) == before.replace(*in_source or (old, new))
        changed = repository.git("diff", "--name-only").split()
        assert {line for line in changed if not line.startswith("generated/")} == {source}
        repository.run("build", "one", "--target=any", "--force")
        after = repository.package("one_any")
        assert all(after[path] == edited[path] for path in edited if path not in ("gen.lock", "gen.map"))
        repository.run("check")

    @pytest.mark.parametrize(
        ("imports", "value", "expected"),
        [("import cmath\nimport math\n\n", "cmath.phase(math.pi)", "import cmath\nimport math\n"), ("", "3", "")],
        ids=["needed", "unused"],
    )
    def test_import_follows_its_uses(self, repository, imports, value, expected):
        repository.replace(ONE, "import math\n\n", imports)
        repository.replace(ONE, "math.pi  # up", f"{value}  # up")
        check_home(repository)
        text = repository.read(NET)
        assert expected in text and ("import math" in text) == bool(expected)

    def test_splice_that_reads_more_of_its_host(self, repository):
        repository.replace(NET, 'point("scale.more", y)', 'point("scale.more", y, x)')
        repository.run("build", "--all")
        repository.replace(ONE, "y = y * y", "y = y * x")
        check_home(repository)
        assert "def _(y, x):" in repository.read(SHIFT)

    def test_value_and_its_line_from_a_template(self, repository):
        """A line that gen derives from a fragment goes home with it."""
        repository.write(TEMPLATE, "{% for f in fields %}{{ f }}\n{% endfor %}")
        repository.run("build", "--all")
        readme = repository.read(README)
        repository.replace("generated/one_any/config.py", "depth: int = 2", "depth: int = 3")
        assert "README.md" in pull(repository, code=1)["refused"][0]["reason"]
        repository.write(README, readme.replace("2", "3"))
        check_home(repository)

    def test_definition_at_the_end_of_a_file(self, repository):
        """Alone, gen would leave it out as unused."""
        text = repository.read(ONE) + "\n\ndef last(x):\n    return x\n"
        repository.write(ONE, text)
        assert "that nothing uses" in pull(repository, code=1)["refused"][0]["reason"]
        repository.write(ONE, text.replace("return x + config.width", "return last(x + config.width)"))
        check_home(repository)
        assert repository.read(NET).endswith("    return last(x + config.width)\n\n\ndef last(x):\n    return x\n")

    def test_no_edit_no_change(self, repository):
        assert pull(repository) == {"diff": "", "home": 0, "refused": [], "others": []}
        assert repository.git("status", "--short") == ""

    def test_verdicts_are_those_of_the_change(self, repository, tmp_path, monkeypatch):
        """They equal those of gen diff --against after the pull, for the edited package and the others."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        repository.replace(ONE, "# up", "# upward")
        repository.replace(ONE, "for _ in range(config.depth):", "for _ in range(config.depth + 1):")
        found = pull(repository, "--verdicts")
        assert "packages" not in pull(repository)
        assert "\nagainst what the fragments make now: " in repository.run("pull", "one_any", "--verdicts").stdout
        pull(repository, "--apply")
        after = json.loads(repository.run("diff", "--against", "HEAD", "--json", code=1).stdout)
        changed = [package for package in after["packages"] if package["files"]]
        assert [package["name"] for package in changed] == ["one_any", "two_any"]
        assert found["packages"] == changed

    def test_nothing_is_written_without_apply(self, repository):
        repository.replace(ONE, "# up", "# upward")
        printed = repository.run("pull", "one_any").stdout
        assert "-    y = x * math.pi  # up\n+    y = x * math.pi  # upward\n" in printed
        assert "also changes two_any\n" in printed
        assert repository.git("status", "--short").split() == ["M", ONE]


class TestRefused:
    @pytest.mark.parametrize(
        ("path", "old", "new", "reason", "remedy"),
        [
            (ONE, "x = x * 2", "x = x * 7", f'{NET}:32: x = x * setting("gain")', "setting"),
            (ONE, "import math", "import math\nimport os", "among the imports, which gen writes", "pull these with it"),
            (ONE, "y = y * y", "y = y*y", "gen formats with black", "y = y * y"),
            (ONE, "\n\n\ndef model", "\n\ndef model", "gen formats with black", "an empty line"),
            (ONE, "return y + 0", "return y + no", "the fragments would not weave", "scale.result, which shows y, z"),
            (ONE, "return y + 0", "return y +", "the file is not valid Python", "Make it run"),
            (ONE, "# Code generated", "# Code made", "gen writes these lines itself", "leave"),
            (README, "you.\n", "you.\nMore.\n", "a template", TEMPLATE),
            ("generated/one_any/config.py", "The settings.", "Settings.", "package.toml:12, which is not", "by hand"),
        ],
    )
    def test_reason(self, repository, path, old, new, reason, remedy):
        if path == README:
            repository.write(TEMPLATE, "# {{ title }}\n\nMade for you.\n")
            repository.run("build", "--all")
            repository.commit("a template")
        repository.replace(path, old, new)
        before = repository.git("status", "--short")
        found = pull(repository, "--apply", code=1)
        assert found["home"] == 0 and found["diff"] == ""
        (one,) = found["refused"]
        assert one["place"].startswith(path) and reason in one["reason"] and remedy in one["remedy"], one
        assert repository.git("status", "--short") == before

    def test_good_edits_go_home_and_the_bad_one_stays(self, repository):
        repository.replace(ONE, "# up", "# upward")
        repository.replace(ONE, "x = x * 2", "x = x * 7")
        repository.replace(ONE, '"nothing came out"', '"empty"')
        found = pull(repository, "--apply", code=1)
        assert found["home"] == 2 and len(found["refused"]) == 1
        assert "x = x * 7" in repository.read(ONE) and "# upward" in repository.read(ONE)
        assert "# upward" in repository.read(TWO) and '"empty"' in repository.read(TWO)
        states = json.loads(repository.run("check", "--json", code=1).stdout)["findings"]
        assert [(one["state"], one["path"]) for one in states] == [("edited", ONE)]
        assert pull(repository, code=1)["home"] == 0  # and the edit that stayed is still refused

    def test_line_ends(self, repository):
        data = repository.read(ONE).replace("# up", "# upward").replace("\n", "\r\n").encode()
        (repository.root / ONE).write_bytes(data)
        found = pull(repository, "--apply", code=1)
        assert found["home"] == 1 and "carriage returns" in found["refused"][0]["reason"]
        assert "# upward" in repository.read(NET) and (repository.root / ONE).read_bytes() == data

    def test_files_gone_and_new(self, repository):
        (repository.root / ONE).unlink()
        repository.write("generated/one_any/mine.py", "x = 1\n")
        reasons = [one["reason"] for one in pull(repository, "--apply", code=1)["refused"]]
        assert reasons == ["is gone", "no fragment made this file"]
        assert not (repository.root / ONE).exists() and repository.read("generated/one_any/mine.py") == "x = 1\n"

    @pytest.mark.parametrize(
        ("edits", "message"),
        [
            ([(ONE, "# up", "# upward"), (TWO, "x = x * 3", "x = x * 4")], "two_any (model.py)"),
            (  # two_any has a helper already
                [
                    (ONE, "def model(x", 'def helper(x):\n    """Mine."""\n    return x\n\n\ndef model(x'),
                    (ONE, "    x = x * 2\n", "    x = helper(x) * 2\n"),
                ],
                "with these changes two_any cannot be woven",
            ),
        ],
        ids=["edited", "broken"],
    )
    def test_other_package(self, repository, edits, message):
        for edit in edits:
            repository.replace(*edit)
        before = repository.git("diff")
        assert message in repository.run("pull", "one_any", "--apply", code=2).stderr
        assert repository.git("diff") == before

    def test_fragments_changed_since(self, repository):
        repository.replace(ONE, "# up", "# upward")
        repository.replace(NET, '"nothing came out"', '"empty"')
        error = repository.run("pull", "one_any", code=2).stderr
        assert "its fragments changed since it was built" in error and "gen update one_any" in error
        repository.run("update", "one_any")
        check_home(repository)
        assert "# upward" in repository.read(NET) and '"empty"' in repository.read(NET)

    def test_no_package(self, repository):
        assert "neither a package" in repository.run("pull", "three_any", code=2).stderr


class TestSharedNames:
    """Edits with a name in common, and names that other fragments read."""

    @pytest.mark.parametrize("name", ["q", "x"])
    def test_name_that_a_splice_of_no_package_reads(self, repository, name):
        """No package selects model/shift, which must still weave: as one optimizer of several."""
        only = ARCHITECTURE.format(title="One", fragments='["model/net"]', gain=2)
        repository.write("templates/architectures/one.toml", only)
        repository.write("generated/packages.toml", '[[package]]\narchitecture = "one"\ntarget = "any"\n')
        repository.run("build", "--all")
        repository.replace(ONE, "    y = x * math.pi", f"    {name} = x * math.pi")
        repository.replace(ONE, "return y + 0", f"return {name} + 0")
        found = pull(repository, code=1)
        assert (found["home"], found["diff"]) == (0, "")

    @pytest.mark.parametrize(
        ("old", "new"), [("y = x * math.pi", "q = x * math.pi"), ('    point("scale.more", y)\n', "")]
    )
    def test_message_names_the_reader(self, old, new):
        library = Library({NET: SOURCES[NET], SHIFT: SOURCES[SHIFT]})
        check_shown_names(library, library.with_texts({NET: SOURCES[NET].replace("y + 0", "y + 1")}))
        with pytest.raises(LoomError, match=r"model/shift reads y at the point 'scale.more'"):
            check_shown_names(library, library.with_texts({NET: SOURCES[NET].replace(old, new)}))

    @pytest.mark.parametrize(
        "edits",
        [
            # the value of the name is refused, as a setting is filled in there
            [
                ("    x = x * 2\n", '    x = {"up": x * 7}\n'),
                ("return x + config.width", 'return x["up"] + config.width'),
            ],
            # the line that reads it is refused
            [("    return y + 0\n", '    return {"top": y}\n'), ("    x = x * 2\n", '    x = x["top"] * 7\n')],
            # one that belongs to one that belongs to the refused one
            [
                ("    return y + 0\n", "    top = y\n    return top\n"),
                ("        x = scale(x)\n", "        x = top = nut = scale(x)\n"),
                ("    x = x * 2\n", "    x = nut = x * 7\n"),
            ],
        ],
        ids=["value", "reader", "chain"],
    )
    def test_edits_that_belong_together(self, repository, edits):
        """Edits with the same new name go home together or not at all; an edit without it goes home."""
        for old, new in edits:
            repository.replace(ONE, old, new)
        repository.replace(ONE, '"nothing came out"', '"empty"')
        before = repository.read(ONE)
        found = pull(repository, "--apply", code=1)
        assert (found["home"], len(found["refused"])) == (1, len(edits))
        assert '"empty"' in found["diff"] and not any(word in found["diff"] for word in ('"up"', "top", "nut"))
        assert any("belongs to the edit at model.py:" in one["reason"] for one in found["refused"])
        assert repository.read(ONE) == before


@pytest.mark.parametrize(
    ("package", "old", "new", "fragment"),
    [
        ("one", "    y = y + 1\n    y = y * y\n", "", "model/shift"),
        (
            "two",
            "    return helper(x * math.pi)  # up\n",
            "    y = x * math.pi  # up\n    return y + 0\n",
            "model/tools",
        ),
    ],
)
def test_a_feature_that_is_deleted_by_hand(repository, package, old, new, fragment):
    """The remedy leaves it out, and gives what was edited; a definition that only the feature used goes too."""
    model, architecture = f"generated/{package}_any/model.py", f"templates/architectures/{package}.toml"
    text = re.sub(r"def helper.*?(?=def scale)", "", repository.read(model), flags=re.DOTALL).replace(old, new)
    repository.write(model, text)
    output = repository.run("pull", f"{package}_any", code=1).output
    assert f"it leaves out {fragment}, and no change of a fragment does\n" in output and "not valid" not in output
    (line,) = set(re.findall(r"Write (without = \[.*?\]) in " + re.escape(architecture), output))
    repository.write(architecture, f"{line}\n{repository.read(architecture)}")
    repository.run("build", f"{package}", "--target=any", "--force")
    assert repository.read(model).partition("\nimport math")[2] == text.partition("\nimport math")[2]
