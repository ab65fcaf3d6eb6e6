"""Parts: what a package can do besides training, asked for by name, listed in packages.toml and kept in the lock."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weaver import weave

LIBRARY = Library.read([Path(__file__).parents[2]])

PARTS = """
[parts.shift]
title = "a shift"
fragments = ["model/shift"]

[parts.more]
title = "more of it"
fragments = ["model/tools"]
needs = ["shift"]
"""
BUILD = ("build", "one", "--target=any")


@pytest.fixture
def project(repository):
    """A project with parts, and no list of packages."""
    repository.write("templates/package.toml", repository.read("templates/package.toml") + PARTS)
    (repository.root / "generated/packages.toml").unlink()
    return repository


def has(project) -> tuple[bool, list[str]]:
    """Returns whether the package has the part, and the parts in its lock."""
    shifted = "y = y + 1" in project.read("generated/one_any/model.py")
    return shifted, json.loads(project.read("generated/one_any/gen.lock")).get("parts", [])


def test_a_package_has_what_it_is_built_with_and_keeps_it(project):
    project.run(*BUILD)
    assert has(project) == (False, [])
    project.run(*BUILD, "--with", "shift")
    assert has(project) == (True, ["shift"])
    project.replace("fragments/model/net.py", "Makes it larger.", "Makes it much larger.")
    assert "gen build one --target=any" in project.run("check", code=1).output
    project.run(*BUILD)
    assert has(project) == (True, ["shift"])
    project.run(*BUILD, "--with", "none")
    assert has(project) == (False, [])
    project.run(*BUILD, "--with", "more")  # which needs the other
    assert has(project) == (True, ["more"])
    project.run("build", "--all")
    project.commit("parts")
    project.run("check", "--full")


def test_the_list_of_packages_says_what_they_have(project):
    note = project.run(*BUILD).stderr
    project.write("generated/packages.toml", '[[package]]\narchitecture = "one"\ntarget = "any"\nparts = ["all"]\n')
    said = project.run("check", code=1).output
    assert "one_any" in said and "it has other parts" in said and note == ""
    project.run("build", "--all")
    assert has(project) == (True, ["all"])
    listed = json.loads(project.run("list", "--json").stdout)
    assert listed["parts"] == [{"name": "shift", "title": "a shift"}, {"name": "more", "title": "more of it"}]
    assert listed["packages"][0]["parts"] == ["all"]
    note = project.run(*BUILD, "--with", "shift").stderr
    assert note.endswith('[[package]]\narchitecture = "one"\ntarget = "any"\nparts = ["shift"]\n')


def test_a_part_may_be_for_some_targets_and_give_settings(project):
    project.write("targets/other/target.toml", project.read("targets/any/target.toml"))
    project.replace(
        "templates/package.toml", 'title = "a shift"', 'title = "a shift"\ntargets = ["any"]\nsettings = { by = 7 }'
    )
    project.replace("fragments/model/shift.py", "y + 1", 'y + setting("by")')
    project.replace("fragments/model/shift.py", "import splice", "import setting, splice")
    project.run(*BUILD, "--with", "shift")
    assert "y = y + 7" in project.read("generated/one_any/model.py")
    refused = project.run("build", "one", "--target=other", "--with", "shift", code=2).stderr
    assert refused == "error: the part shift is not for other\n  Leave it out; it is for any.\n"
    project.run("build", "one", "--target=other", "--with", "all")
    assert "y = y + 7" not in project.read("generated/one_other/model.py")


def test_of_parts_that_decide_the_same_a_package_has_one_and_only_by_name(project):
    project.replace("templates/package.toml", 'title = "a shift"', 'title = "a shift"\nchoice = "shifts"')
    project.replace("templates/package.toml", 'needs = ["shift"]', 'choice = "shifts"')
    project.run(*BUILD, "--with", "all")
    assert has(project)[0] is False
    project.run(*BUILD, "--with", "all", "--with", "shift")
    assert has(project)[0] is True
    refused = project.run(*BUILD, "--with", "shift", "--with", "more", code=2).stderr
    assert refused == "error: the parts shift and more both decide on shifts\n  Give one of them.\n"


@pytest.mark.parametrize(
    ("asked", "part"),
    {
        "sft": "chat_data",
        "DPO": "preferences",
        "orpo": "preferences",
        "kto": "preferences",
        "grpo": "rewards",
        "peft": "lora",
        "vllm": "serve",
    }.items(),
)
def test_what_people_call_a_part_leads_to_it(asked, part):
    with pytest.raises(LoomError, match=f"unknown part '{asked}'\n  It is the part {part}: --with {part}."):
        weave("llama2", "cpu", LIBRARY, parts=(asked,))


@pytest.mark.slow
def test_every_architecture_can_have_adapters_on_every_target():
    for architecture, target in product(LIBRARY.architectures(), LIBRARY.targets()):
        plain, adapted = (
            {it.name for it in select(architecture, target, LIBRARY, parts=it).fragments} for it in ((), ["lora"])
        )
        assert adapted >= plain and "model/lora" in adapted - plain


def test_a_part_that_a_selected_fragment_excludes_says_so():
    muon = 'base = "llama2"\ntitle = "With Muon"\nfragments = ["train/muon"]'
    library = LIBRARY.with_texts({"templates/architectures/with_muon.toml": muon})
    with pytest.raises(LoomError, match="adds nothing to with_muon for cpu: model/lora excludes muon"):
        select("with_muon", "cpu", library, parts=("lora",))


def test_a_fragment_that_every_package_or_its_part_selects_is_not_selected_again():
    again = 'base = "llama2"\ntitle = "Again"\nfragments = ["model/lora"]'
    with pytest.raises(
        LoomError, match=r"'model/lora' is also selected .*\n  Take it away here, and build --with lora\."
    ):
        select("again", "cpu", LIBRARY.with_texts({"templates/architectures/again.toml": again}))


@pytest.mark.parametrize(
    ("path", "old", "new", "command", "message"),
    [
        ("templates/package.toml", "model/shift", "model/shfit", BUILD, "part shift has 'model/shfit' under fragments"),
        ("templates/package.toml", 'needs = ["shift"]', 'needs = ["x"]', BUILD, "part more has 'x' under needs"),
        ("templates/package.toml", "a shift", "a shift", (*BUILD, "--with", "shfit"), "unknown part 'shfit'"),
        (
            "templates/package.toml",
            'title = "a shift"',
            'title = "x"\ntargets = ["x"]',
            BUILD,
            "part shift has 'x' under targets",
        ),
        ("templates/package.toml", 'title = "a shift"', "", BUILD, "title"),
        (
            "templates/package.toml",
            "a shift",
            "a shift",
            ("build", "--all", "--with", "shift"),
            "--with goes with ARCH",
        ),
    ],
)
def test_mistakes_are_named(project, path, old, new, command, message):
    project.replace(path, old, new)
    said = project.run(*command, code=2).output
    assert message in said and "Traceback" not in said


def test_a_target_has_parts_by_default_that_a_package_may_leave_out(project):
    project.replace("targets/any/target.toml", "title =", 'parts = ["shift"]\ntitle =')
    project.run(*BUILD)
    assert has(project) == (True, [])
    project.run(*BUILD, "--without", "shift")
    assert has(project) == (False, ["-shift"])
    project.run(*BUILD)
    assert has(project) == (False, ["-shift"])  # it keeps that
    refused = project.run(*BUILD, "--with", "more", "--without", "shift", code=2).stderr
    assert refused.startswith("error: the part shift is left out, and is asked for or needed by more\n")
    project.run(*BUILD, "--with", "all", "--without", "shift")  # and what needs it
    assert has(project) == (False, ["-shift", "all"])
    project.run(*BUILD, "--with", "none")
    assert has(project) == (True, [])
    project.write("generated/packages.toml", '[[package]]\narchitecture = "one"\ntarget = "any"\nparts = ["-shift"]\n')
    project.run("build", "--all")
    assert has(project) == (False, ["-shift"])
    assert json.loads(project.run("list", "--json").stdout)["packages"][0]["parts"] == ["-shift"]
    for command in (BUILD, ("build", "--all")):
        assert "Traceback" not in project.run(*command, "--without", "shfit", code=2).output
    project.replace("targets/any/target.toml", '"shift"', '"shfit"')
    assert "targets/any/target.toml:1: unknown part 'shfit'" in project.run(*BUILD, code=2).stderr
