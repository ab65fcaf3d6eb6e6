"""Where gen looks: gen.toml, packages.toml, and two libraries."""

from __future__ import annotations

import pytest

from generator.disk.project import Combination, Project, builtin_root


def find(workshop) -> Project:
    return Project.find(builtin=workshop.builtin)


class TestRoot:
    def test_the_working_directory_without_settings(self, workshop):
        assert find(workshop).root == workshop.root

    def test_the_nearest_folder_with_settings(self, workshop, monkeypatch):
        (workshop.root / "gen.toml").write_text('generated = "out/packages"\n')
        (workshop.root / "a/b").mkdir(parents=True)
        monkeypatch.chdir(workshop.root / "a/b")
        project = find(workshop)
        assert project.root == workshop.root
        assert project.generated == workshop.root / "out/packages"
        assert project.roots == (workshop.builtin, workshop.root)

    def test_the_built_in_root_itself_is_one_root(self, workshop, monkeypatch):
        monkeypatch.chdir(workshop.builtin)
        assert find(workshop).roots == (workshop.builtin,)

    def test_the_library_that_an_installed_gen_carries(self, tmp_path, monkeypatch):
        monkeypatch.setattr("generator.disk.project.__file__", str(tmp_path / "generator/disk/project.py"))
        assert builtin_root() == tmp_path
        (tmp_path / "generator/_library").mkdir(parents=True)
        assert builtin_root() == tmp_path / "generator/_library"


class TestUsersLibrary:
    def test_takes_part(self, workshop):
        (workshop.root / "templates/architectures").mkdir(parents=True)
        (workshop.root / "templates/architectures/mine.toml").write_text('fragments = ["model/mine", "model/rope"]\n')
        (workshop.root / "fragments/model").mkdir(parents=True)
        (workshop.root / "fragments/model/mine.py").write_text("mine = 1\n")
        workshop.run("build", "mine", "--target=cpu")
        assert "mine = 1" in (workshop.generated / "mine_cpu/model.py").read_text()
        workshop.run("check")
        assert "mine" in workshop.run("list").stdout
        (workshop.root / "fragments/model/mine.py").write_text("mine = 2\n")
        workshop.run("check", code=1)

    def test_clashes_loudly_also_after_a_build(self, workshop):
        workshop.build("llama_cpu")
        (workshop.root / "fragments/model").mkdir(parents=True)
        (workshop.root / "fragments/model/rope.py").write_text("mine = 1\n")
        assert "also built in" in workshop.run("build", "llama", "--target=cpu", code=2).stderr
        assert "also built in" in workshop.run("check", code=2).stderr


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("generatd = 'x'", "gen.toml: unknown key 'generatd'\n  Did you mean generated?"),
            ("generated = 3", "gen.toml: generated is not the name of a folder"),
            ("# fine\ngenerated = ", "gen.toml:2: not valid TOML"),
        ],
    )
    def test_mistakes(self, workshop, text, message):
        (workshop.root / "gen.toml").write_text(text)
        assert message in workshop.run("check", code=2).stderr

    def test_not_text(self, workshop):
        (workshop.root / "gen.toml").write_bytes(b"\xff\xfe\0")
        assert "gen.toml: is not UTF-8 text" in workshop.run("check", code=2).stderr


class TestPackages:
    def test_in_the_order_of_the_list(self, workshop):
        workshop.list_packages("plain_gpu", "llama_cpu")
        assert find(workshop).packages() == [Combination("plain", "gpu"), Combination("llama", "cpu")]

    def test_without_a_list_those_that_were_built(self, workshop):
        workshop.build("plain_gpu", "llama_cpu")
        assert find(workshop).packages() == [Combination("llama", "cpu"), Combination("plain", "gpu")]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('[[packag]]\narchitecture = "a"', "unknown key 'packag'\n  Did you mean package?"),
            ('[[package]]\narchitectur = "a"', "unknown key 'architectur'\n  Did you mean architecture?"),
            ('[[package]]\narchitecture = "a"', "([[package]] number 1): does not name its architecture and target"),
            ('[[package]]\narchitecture = "../a"\ntarget = "b"', "number 1): does not name"),
            ("package = 3", "package is not a list of tables"),
            ('[[package]]\narchitecture = "a"\ntarget = "b"\n' * 2, "a_b is listed twice"),
        ],
    )
    def test_mistakes(self, workshop, text, message):
        workshop.generated.mkdir()
        (workshop.generated / "packages.toml").write_text(text)
        stderr = workshop.run("check", code=2).stderr
        assert stderr.startswith("error: generated/packages.toml") and message in stderr

    @pytest.mark.parametrize("text", ["{", "[]", "{}", '{"outputs": 3}', "\0"])
    def test_lock_that_cannot_be_read(self, workshop, text):
        workshop.build("llama_cpu")
        (workshop.generated / "llama_cpu/gen.lock").write_text(text)
        stderr = workshop.run("build", "--all", code=2).stderr
        assert stderr.startswith("error: generated/llama_cpu/gen.lock") and "--force" in stderr


def test_settings_that_dangle_are_named(workshop):
    (workshop.root / "gen.toml").symlink_to("nowhere/gen.toml")
    said = workshop.run("check", code=2).stderr
    assert "gen.toml: is a symbolic link to nowhere/gen.toml, which is not there" in said


class TestRequires:
    @pytest.mark.parametrize("asked", ["", ">=0.1", ">= 0.1.0, <0.2", "==0.1", "!=0.2,<=0.1.0.0"])
    def test_this_gen(self, workshop, asked):
        (workshop.root / "gen.toml").write_text(f'requires = "{asked}"\n')
        workshop.run("list")

    @pytest.mark.parametrize("asked", [">=0.2", "<0.1", "!=0.1", ">=0.1,<0.1.0", "==1"])
    def test_another(self, workshop, asked):
        (workshop.root / "gen.toml").write_text(f'requires = "{asked}"\n')
        assert f"gen.toml: requires gen {asked}, and this is gen 0.1.0" in workshop.run("list", code=2).stderr

    @pytest.mark.parametrize("value", ['"0.1"', "0.1", '">=a"', '"~=0.1"', "[]"])
    def test_mistake(self, workshop, value):
        (workshop.root / "gen.toml").write_text(f"requires = {value}\n")
        assert "requires is not a range of versions" in workshop.run("list", code=2).stderr
