"""gen build: which files it writes, which it leaves alone, and how it recovers."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from conftest import weave_files

from generator.disk import write
from generator.disk.lock import hash_generator
from generator.disk.status import JOURNAL

PACKAGE = ["docs/README.md", "gen.lock", "gen.map", "kernels.py", "model.py", "train.py"]
BUILD = ("build", "llama", "--target=cpu")
NO_TRAINING = 'fragments = ["kernels/cpu"]\n'  # a target without train.py


@pytest.fixture
def woven(workshop, monkeypatch):
    """The names of the packages that were woven, in order."""
    names = []

    def weave(architecture, target, *others):
        names.append(f"{architecture}_{target}")
        return weave_files(architecture, target, *others)

    monkeypatch.setattr("generator.commands.packages.weave_package", weave)
    return names


@pytest.fixture
def built(workshop, woven):
    workshop.build("llama_cpu")
    return workshop


class TestWriting:
    def test_only_files_whose_bytes_change(self, workshop, woven):
        assert workshop.run(*BUILD).stdout == "generated/llama_cpu: 6 written, 0 unchanged\n"
        assert sorted(workshop.tree("llama_cpu")) == PACKAGE
        places = [workshop.generated / "llama_cpu" / path for path in PACKAGE]
        for place in places:
            os.utime(place, ns=(1, 1))
        assert workshop.run(*BUILD).stdout == "generated/llama_cpu: as it should be\n" and woven == ["llama_cpu"]
        workshop.source("fragments/train/loop.py", '"""The loop."""\n\n\ndef loop():\n    return 1\n')
        workshop.run(*BUILD)
        assert [place.name for place in places if place.stat().st_mtime_ns != 1] == ["gen.lock", "gen.map", "train.py"]
        assert b"return 1" in workshop.tree("llama_cpu")["train.py"]

    def test_dry_run_and_a_file_that_nothing_makes_any_more(self, workshop):
        assert "would write generated/llama_cpu/model.py\n" in workshop.run(*BUILD, "--dry-run").stdout
        assert not workshop.generated.exists()
        workshop.build("llama_cpu")
        before = workshop.tree("llama_cpu")
        workshop.source("targets/cpu/target.toml", NO_TRAINING)
        assert "would remove generated/llama_cpu/train.py\n" in workshop.run(*BUILD, "--dry-run").stdout
        assert workshop.tree("llama_cpu") == before
        assert "1 removed" in workshop.run(*BUILD).stdout
        assert sorted(workshop.tree("llama_cpu")) == [path for path in PACKAGE if path != "train.py"]

    def test_folder_left_empty_is_removed(self, built, monkeypatch):
        def weave(*arguments):
            package = weave_files(*arguments)
            del package.files["docs/README.md"]
            return package

        monkeypatch.setattr("generator.commands.packages.weave_package", weave)
        built.source("fragments/train/loop.py", "x = 1\n")
        built.run(*BUILD)
        assert not (built.generated / "llama_cpu/docs").exists()

    def test_lock_has_every_input_and_no_time_or_place(self, built, woven, tmp_path):
        built.run(*BUILD, "--out", str(tmp_path / "other place"))
        other = (tmp_path / "other place/llama_cpu/gen.lock").read_bytes()
        assert built.tree("llama_cpu")["gen.lock"] == other
        lock = json.loads(other)
        assert sorted(lock) == ["architecture", "generator", "inputs", "outputs", "seal", "target", "tools"]
        assert sorted(lock["outputs"]) == [path for path in PACKAGE if path != "gen.lock"]
        assert sorted(lock["tools"]) == ["black", "jinja2", "libcst", "pytokens"]
        assert lock["generator"]["sha256"] == hash_generator()
        for path in lock["inputs"]:
            woven.clear()
            built.source(path, (built.builtin / path).read_text() + "# more\n")
            built.run(*BUILD)
            assert woven == ["llama_cpu"], path
        built.source("fragments/model/unused.py", "x = 1\n")
        built.source("fragments/kernels/gpu.py", "x = 1\n")
        built.run(*BUILD)
        assert woven == ["llama_cpu"]


class TestProtectedFiles:
    @pytest.mark.parametrize(
        ("path", "source", "text"),
        [
            ("model.py", "fragments/train/loop.py", "x = 1\n"),
            ("model.py", None, None),  # though no source changed
            ("train.py", "targets/cpu/target.toml", NO_TRAINING),  # a build would remove it
        ],
    )
    def test_edit_is_kept_unless_forced(self, built, path, source, text):
        (built.generated / "llama_cpu" / path).write_text("mine = 1\n")
        if source:
            built.source(source, text)
        before = built.tree("llama_cpu")
        error = built.run(*BUILD, code=2).stderr
        assert f"generated/llama_cpu/{path} was edited" in error and "gen build llama --target=cpu --force" in error
        built.run(*BUILD, "--dry-run", code=2)
        assert built.tree("llama_cpu") == before, "nothing at all is written in that package"
        built.run(*BUILD, "--force")
        assert b"mine" not in built.tree("llama_cpu").get(path, b"")

    def test_file_that_gen_did_not_make(self, workshop):
        (workshop.generated / "llama_cpu").mkdir(parents=True)
        (workshop.generated / "llama_cpu/model.py").write_text("mine = 1\n")
        assert "model.py was not made by gen" in workshop.run(*BUILD, code=2).stderr
        assert list(workshop.tree("llama_cpu")) == ["model.py"]
        (workshop.generated / "llama_cpu/model.py").rename(workshop.generated / "llama_cpu/notes.py")
        workshop.run(*BUILD, "--force")
        assert workshop.tree("llama_cpu")["notes.py"] == b"mine = 1\n"

    def test_broken_lock_owns_nothing_and_deletes_nothing_outside(self, built):
        victim, lock = built.root / "victim.py", built.generated / "llama_cpu/gen.lock"
        lock.write_text("<<<<<<< ours\n" + lock.read_text())
        built.run(*BUILD)
        text = lock.read_text()
        lock.write_text("<<<<<<< ours\n" + text)
        built.source("fragments/train/loop.py", "x = 1\n")
        built.run(*BUILD, code=2)
        built.run(*BUILD, "--force")
        victim.write_text("")
        table = json.loads(text)
        table["outputs"]["../../victim.py"] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        lock.write_text(json.dumps(table))
        built.run(*BUILD)
        assert victim.exists()


class TestInterrupted:
    def test_next_build_mends_a_build_cut_short(self, built, monkeypatch):
        built.source("fragments/model/rope.py", "x = 1\n")
        built.source("fragments/train/loop.py", "y = 1\n")
        replace, done = write.replace_file, []

        def replace_some(folder, path, data):
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(path)
            replace(folder, path, data)

        monkeypatch.setattr(write, "replace_file", replace_some)
        built.run(*BUILD, code=130)
        assert done[0] == JOURNAL and "model.py" in done
        monkeypatch.setattr(write, "replace_file", replace)
        assert "cut short" in built.run("check", code=1).stdout
        # the sources move on: the half-written file is neither what the lock says nor what is made now
        built.source("fragments/model/rope.py", "x = 2\n")
        built.run(*BUILD)
        assert b"x = 2" in built.tree("llama_cpu")["model.py"] and sorted(built.tree("llama_cpu")) == PACKAGE
        built.run("check")

    def test_full_disk_is_an_error_and_leaves_the_old_lock(self, built, monkeypatch):
        before = built.tree("llama_cpu")["gen.lock"]
        built.source("fragments/model/rope.py", "x = 1\n")

        def fail(folder, path, data):
            raise OSError(28, "No space left on device", str(folder / path))

        monkeypatch.setattr(write, "replace_file", fail)
        error = built.run(*BUILD, code=2).stderr
        assert error.startswith("error: generated/llama_cpu/.gen.pending: cannot be written: No space left")
        assert built.tree("llama_cpu")["gen.lock"] == before


class TestPlaces:
    @pytest.mark.parametrize(
        ("place", "kind", "said"),
        [
            ("generated", "file", "is a file where gen needs a folder"),
            ("generated", "symbolic link", "is a symbolic link that leads out of the project"),
            ("generated/llama_cpu", "file", "is a file where gen needs a folder"),
            ("generated/llama_cpu", "symbolic link", "is a symbolic link"),
            ("generated/llama_cpu/docs", "file", "is a file where gen needs a folder"),
            ("generated/llama_cpu/docs", "symbolic link", "is a symbolic link where gen needs a folder"),
            ("generated/llama_cpu/model.py", "folder", "is a folder where gen makes a file"),
        ],
    )
    def test_something_in_the_way(self, workshop, tmp_path, place, kind, said):
        path, outside = workshop.root / place, tmp_path / "outside"
        path.parent.mkdir(exist_ok=True, parents=True)
        outside.mkdir()
        if kind == "folder":
            path.mkdir()
        elif kind == "file":
            path.write_text("")
        else:
            path.symlink_to(outside)
        assert f"{place}: {said}" in workshop.run(*BUILD, "--force", code=2).stderr
        assert not list(outside.iterdir())

    def test_a_link_to_nowhere(self, workshop):
        (workshop.root / "out").symlink_to("nowhere")
        error = workshop.run(*BUILD, "--out", "out", code=2).stderr
        assert error.startswith("error: out: is a symbolic link to nowhere, which is not there")

    @pytest.mark.parametrize("name", [".gen.tmp", JOURNAL, "gen.lock", "gen.map", "model.py"])
    def test_link_is_never_written_through(self, built, name):
        victim, link = built.root / "victim.py", built.generated / "llama_cpu" / name
        victim.write_text("mine\n")
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        if name not in ("gen.lock", "model.py"):  # without a lock the changed file would not be known as gen's
            built.source("fragments/model/rope.py", "x = 1\n")
        if name == "model.py":
            assert "model.py is a symbolic link" in built.run(*BUILD, code=2).stderr
        built.run(*BUILD, *(["--force"] if name == "model.py" else []))
        assert victim.read_text() == "mine\n" and not link.is_symlink()
        built.run("check")

    def test_new_does_not_write_through_a_link(self, workshop, monkeypatch):
        library = SimpleNamespace(architectures=lambda: ())
        monkeypatch.setattr("generator.disk.project.Project.library", lambda project: library)
        monkeypatch.setattr("generator.commands.new.find_families", lambda *_: ["llama"])
        monkeypatch.setattr("generator.commands.new.fit", lambda *_: 'title = "Mine"\n')
        link, outside = workshop.root / "templates/architectures/mine.toml", workshop.root / "outside.toml"
        link.parent.mkdir(parents=True)
        link.symlink_to(outside)
        (workshop.root / "config.json").write_text('{"model_type": "llama"}')
        result = workshop.run("new", "--from-hf", "config.json", "--target=cpu", "--name=mine", code=2)
        assert "mine.toml: File exists" in result.stderr and not outside.exists()

    def test_folder_that_cannot_be_written(self, workshop):
        assert workshop.run(*BUILD, "--out", "/proc/nowhere", code=2).stderr.startswith("error: /proc/nowhere")
        workshop.generated.mkdir(mode=0o555)
        if os.geteuid():  # root may write everywhere
            assert "cannot be written: Permission denied" in workshop.run(*BUILD, code=2).stderr


def test_generator_hash_covers_what_weaves_and_nothing_else(tmp_path):
    for path in ("weaver.py", "weave/link.py", "code/deep/er.py", "commands/view.py", "_library/fragments/rope.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        before = hash_generator(package=tmp_path)
        (tmp_path / path).write_text("")
        assert (hash_generator(package=tmp_path) == before) == path.startswith(("commands", "_library")), path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build", "lama", "--target=cpu"], "unknown architecture 'lama'\n  Did you mean llama?"),
        (["build", "llama", "--target=gpux"], "unknown target 'gpux'\n  Did you mean gpu"),
        (["build", "../../evil", "--target=cpu"], "unknown architecture"),
        (["build", "--all"], "there is no package to build"),
        (["build"], "build needs an architecture and a target, or --all"),
        (["build", "llama"], "build needs an architecture and a target, or --all"),
        (["build", "--all", "llama"], "build needs an architecture and a target, or --all"),
    ],
)
def test_mistakes(workshop, words, said):
    assert said in workshop.run(*words, code=2).stderr
    assert not workshop.generated.exists()


def test_note_for_a_package_that_is_not_listed(workshop):
    workshop.list_packages("plain_cpu")
    note = 'is not in generated/packages.toml like this; to keep it, write\n\n[[package]]\narchitecture = "llama"\n'
    assert f'note: llama_cpu {note}target = "cpu"\n' in workshop.run(*BUILD).stderr
