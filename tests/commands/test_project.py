"""The project that gen finds: gen.toml, packages.toml, and two libraries."""

from __future__ import annotations

import pytest

from generator.disk.project import Combination, Project, builtin_root


def find(workshop) -> Project:
    return Project.find(builtin=workshop.builtin)


class TestRoot:
    def test_the_nearest_folder_with_settings(self, workshop, monkeypatch):
        assert find(workshop).root == workshop.root, "without settings the working directory"
        (workshop.root / "gen.toml").write_text('generated = "out/packages"\n')
        (workshop.root / "a/b").mkdir(parents=True)
        monkeypatch.chdir(workshop.root / "a/b")
        project = find(workshop)
        assert (project.root, project.generated) == (workshop.root, workshop.root / "out/packages")
        assert project.roots == (workshop.builtin, workshop.root)
        monkeypatch.chdir(workshop.builtin)
        assert find(workshop).roots == (workshop.builtin,)

    def test_the_library_that_an_installed_gen_carries(self, tmp_path, monkeypatch):
        monkeypatch.setattr("generator.disk.project.__file__", str(tmp_path / "generator/disk/project.py"))
        assert builtin_root() == tmp_path
        (tmp_path / "generator/_library").mkdir(parents=True)
        assert builtin_root() == tmp_path / "generator/_library"


class TestUsersLibrary:
    def write(self, workshop, path: str, text: str) -> None:
        (workshop.root / path).parent.mkdir(parents=True, exist_ok=True)
        (workshop.root / path).write_text(text)

    def test_takes_part(self, workshop):
        self.write(workshop, "templates/architectures/mine.toml", 'fragments = ["model/mine", "model/rope"]\n')
        self.write(workshop, "fragments/model/mine.py", "mine = 1\n")
        workshop.run("build", "mine", "--target=cpu")
        assert "mine = 1" in (workshop.generated / "mine_cpu/model.py").read_text()
        workshop.run("check")
        assert "mine" in workshop.run("list").stdout
        self.write(workshop, "fragments/model/mine.py", "mine = 2\n")
        workshop.run("check", code=1)

    def test_clashes_loudly_also_after_a_build(self, workshop):
        workshop.build("llama_cpu")
        self.write(workshop, "fragments/model/rope.py", "mine = 1\n")
        assert "also built in" in workshop.run("build", "llama", "--target=cpu", code=2).stderr
        assert "also built in" in workshop.run("check", code=2).stderr


PACKAGE = '[[package]]\narchitecture = "a"\ntarget = "b"\n'


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("gen.toml", "generatd = 'x'", ":1: unknown key generatd\n  Did you mean generated?"),
        ("gen.toml", "generated = 3", ":1: generated is 3, not a string"),
        ("gen.toml", "generated = ''", ":1: generated is empty"),
        ("gen.toml", "# fine\ngenerated = ", ":2: not valid TOML"),
        ("gen.toml", b"\xff\xfe\0", ":1: is not UTF-8 text"),
        ("gen.toml", 'requires = "0.1"', ":1: requires is not a range of versions"),
        ("gen.toml", 'requires = ">=a"', ":1: requires is not a range of versions"),
        ("gen.toml", "\nrequires = 0.1", ":2: requires is 0.1, not a string"),
        ("packages.toml", PACKAGE + "[[packag]]\n", ":4: unknown key packag\n  Did you mean package?"),
        (
            "packages.toml",
            PACKAGE + '[[package]]\narchitectur = "a"',
            ":5: unknown key package[1].architectur\n  Did you mean architecture?",
        ),
        ("packages.toml", '[[package]]\narchitecture = "a"', ":1: package[0].target is missing\n  Add"),
        ("packages.toml", PACKAGE.replace('"a"', '"../a"'), ":2: package[0].architecture is '../a', not"),
        ("packages.toml", "package = 3", ":1: package is 3, not a list"),
        ("packages.toml", PACKAGE * 2, ":4: a_b is listed twice"),
        ("packages.toml", PACKAGE + 'parts = "shift"', ":4: package[0].parts is 'shift', not a list"),
        ("packages.toml", PACKAGE + 'committed = "no"', ":4: package[0].committed is 'no', not true or false"),
        ("packages.toml", PACKAGE + "committed = false\nby_hand = true", ":1: by_hand and committed = false exclude"),
    ],
)
def test_mistakes(workshop, path, text, message):
    place = workshop.root / path if path == "gen.toml" else workshop.generated / path
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    stderr = workshop.run("check", code=2).stderr
    assert stderr.startswith(f"error: {place.relative_to(workshop.root)}{message}") and "\n  " in stderr


def test_settings_that_dangle_are_named(workshop):
    (workshop.root / "gen.toml").symlink_to("nowhere/gen.toml")
    said = workshop.run("check", code=2).stderr
    assert "gen.toml: is a symbolic link to nowhere/gen.toml, which is not there" in said


def test_packages_in_the_order_of_the_list_or_those_that_were_built(workshop):
    combinations = [Combination("plain", "gpu"), Combination("llama", "cpu")]
    workshop.build("plain_gpu", "llama_cpu")
    assert find(workshop).packages() == combinations[::-1]
    workshop.list_packages("plain_gpu", "llama_cpu")
    assert find(workshop).packages() == combinations


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"outputs": 3}', "\0"])
def test_lock_that_cannot_be_read(workshop, text):
    workshop.build("llama_cpu")
    (workshop.generated / "llama_cpu/gen.lock").write_text(text)
    stderr = workshop.run("build", "--all", code=2).stderr
    assert stderr.startswith("error: generated/llama_cpu/gen.lock") and "--force" in stderr


@pytest.mark.parametrize(
    ("fits", "versions"),
    [
        (True, ("", ">=0.1", ">= 0.1.0, <0.2", "==0.1", "~=0.1", "!=0.2,<=0.1.0.0")),
        (False, (">=0.2", "<0.1", "!=0.1", ">=0.1,<0.1.0", "==1")),
    ],
)
def test_versions_that_a_project_requires(workshop, fits, versions):
    for asked in versions:
        (workshop.root / "gen.toml").write_text(f'requires = "{asked}"\n')
        error = workshop.run("list", code=0 if fits else 2).stderr
        assert fits or f"gen.toml:1: requires gen {asked}, and this is gen 0.1.0" in error
