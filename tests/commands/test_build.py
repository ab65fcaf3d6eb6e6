"""gen build: what it writes, what it leaves alone, and how it mends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from generator.disk import write
from generator.disk.lock import generator_hash, modules_behind
from generator.disk.write import JOURNAL

PACKAGE = ["docs/README.md", "gen.lock", "gen.map", "kernels.py", "model.py", "train.py"]
BUILD = ("build", "llama", "--target=cpu")

REPOSITORY = str(Path(__file__).resolve().parents[2])
# gen build --all in processes that tell their number and then weave for ever
SLOW = """
import os, sys, time
from pathlib import Path
import generator.commands.build, generator.disk.project
builtin = Path(sys.argv.pop())
generator.disk.project.builtin_root = lambda: builtin
os.sched_getaffinity = lambda process: {0, 1}
def weave(*_):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(1000)
generator.commands.build.weave = weave
from generator.commands.cli import gen
sys.argv += ["build", "--all"]
gen()
"""


@pytest.fixture
def count_weaving(workshop, monkeypatch):
    """The packages that were woven, in order."""
    from conftest import weave_files

    woven = []

    def weave(architecture, target, *others):
        woven.append(f"{architecture}_{target}")
        return weave_files(architecture, target, *others)

    monkeypatch.setattr("generator.commands.build.weave", weave)
    return woven


class TestWriting:
    def test_first_build_writes_every_file(self, workshop):
        result = workshop.run(*BUILD)
        assert sorted(workshop.tree("llama_cpu")) == PACKAGE
        assert result.stdout == "generated/llama_cpu: 6 written, 0 unchanged\n"

    def test_out_takes_the_place_of_generated(self, workshop):
        workshop.run(*BUILD, "--out", "elsewhere")
        assert (workshop.root / "elsewhere/llama_cpu/model.py").is_file()
        assert not workshop.generated.exists()

    def test_second_build_weaves_and_writes_nothing(self, workshop, count_weaving):
        workshop.build("llama_cpu")
        before = {path: os.stat(workshop.generated / "llama_cpu" / path).st_mtime_ns for path in PACKAGE}
        assert workshop.run(*BUILD).stdout == "generated/llama_cpu: as it should be\n"
        assert {path: os.stat(workshop.generated / "llama_cpu" / path).st_mtime_ns for path in PACKAGE} == before
        assert count_weaving == ["llama_cpu"]

    def test_only_files_whose_bytes_change_are_written(self, workshop):
        workshop.build("llama_cpu")
        model = workshop.generated / "llama_cpu/model.py"
        train = workshop.generated / "llama_cpu/train.py"
        os.utime(train, ns=(1, 1))
        os.utime(model, ns=(1, 1))
        workshop.source("fragments/train/loop.py", '"""The loop."""\n\n\ndef loop():\n    return 1\n')
        workshop.run(*BUILD)
        assert model.stat().st_mtime_ns == 1
        assert train.stat().st_mtime_ns != 1
        assert "return 1" in train.read_text()

    def test_file_that_nothing_makes_any_more_is_removed(self, workshop):
        workshop.build("llama_cpu")
        workshop.source("targets/cpu/target.toml", 'fragments = ["kernels/cpu"]\n')
        assert "1 removed" in workshop.run(*BUILD).stdout
        assert not (workshop.generated / "llama_cpu/train.py").exists()

    def test_folder_left_empty_is_removed(self, workshop, monkeypatch):
        from conftest import weave_files

        workshop.build("llama_cpu")

        def weave(*arguments):
            package = weave_files(*arguments)
            del package.files["docs/README.md"]
            return package

        monkeypatch.setattr("generator.commands.build.weave", weave)
        workshop.source("fragments/train/loop.py", "x = 1\n")
        workshop.run(*BUILD)
        assert not (workshop.generated / "llama_cpu/docs").exists()

    def test_dry_run_writes_nothing(self, workshop):
        result = workshop.run(*BUILD, "--dry-run")
        assert "would write generated/llama_cpu/model.py\n" in result.stdout
        assert not workshop.generated.exists()
        workshop.build("llama_cpu")
        before = workshop.tree("llama_cpu")
        workshop.source("targets/cpu/target.toml", 'fragments = ["kernels/cpu"]\n')
        result = workshop.run(*BUILD, "--dry-run")
        assert "would remove generated/llama_cpu/train.py\n" in result.stdout
        assert workshop.tree("llama_cpu") == before

    def test_lock_holds_no_clock_and_no_place(self, workshop, tmp_path):
        workshop.build("llama_cpu")
        workshop.run(*BUILD, "--out", str(tmp_path / "other place"))
        other = (tmp_path / "other place/llama_cpu/gen.lock").read_bytes()
        assert workshop.tree("llama_cpu")["gen.lock"] == other
        lock = json.loads(other)
        assert sorted(lock) == ["architecture", "generator", "inputs", "outputs", "seal", "target", "tools"]
        assert sorted(lock["outputs"]) == [path for path in PACKAGE if path != "gen.lock"]
        assert sorted(lock["tools"]) == ["jinja2", "libcst", "pytokens", "ruff"]
        assert lock["generator"]["sha256"] == generator_hash()


class TestSomebodysWork:
    def test_edited_file_is_not_overwritten(self, workshop):
        workshop.build("llama_cpu")
        model = workshop.generated / "llama_cpu/model.py"
        model.write_text(model.read_text() + "mine = 1\n")
        workshop.source("fragments/train/loop.py", "x = 1\n")
        before = workshop.tree("llama_cpu")
        result = workshop.run(*BUILD, code=2)
        assert "generated/llama_cpu/model.py was edited" in result.stderr
        assert "gen build llama --target=cpu --force" in result.stderr
        assert workshop.tree("llama_cpu") == before, "nothing at all is written in that package"

    def test_edited_file_is_seen_though_no_source_changed(self, workshop):
        workshop.build("llama_cpu")
        (workshop.generated / "llama_cpu/model.py").write_text("mine = 1\n")
        workshop.run(*BUILD, code=2)
        workshop.run(*BUILD, "--dry-run", code=2)

    def test_force_overwrites(self, workshop):
        workshop.build("llama_cpu")
        before = workshop.tree("llama_cpu")
        (workshop.generated / "llama_cpu/model.py").write_text("mine = 1\n")
        workshop.run(*BUILD, "--force")
        assert workshop.tree("llama_cpu") == before

    def test_edited_file_that_nothing_makes_any_more_is_kept(self, workshop):
        workshop.build("llama_cpu")
        train = workshop.generated / "llama_cpu/train.py"
        train.write_text("mine = 1\n")
        workshop.source("targets/cpu/target.toml", 'fragments = ["kernels/cpu"]\n')
        assert "train.py was edited" in workshop.run(*BUILD, code=2).stderr
        assert train.read_text() == "mine = 1\n"
        workshop.run(*BUILD, "--force")
        assert not train.exists()

    def test_file_that_gen_did_not_make_is_not_overwritten(self, workshop):
        (workshop.generated / "llama_cpu").mkdir(parents=True)
        (workshop.generated / "llama_cpu/model.py").write_text("mine = 1\n")
        assert "model.py was not made by gen" in workshop.run(*BUILD, code=2).stderr
        assert list(workshop.tree("llama_cpu")) == ["model.py"]

    def test_own_files_in_the_package_stay(self, workshop):
        workshop.build("llama_cpu")
        (workshop.generated / "llama_cpu/notes.py").write_text("mine = 1\n")
        workshop.source("fragments/train/loop.py", "x = 1\n")
        workshop.run(*BUILD, "--force")
        assert (workshop.generated / "llama_cpu/notes.py").exists()

    def test_lock_with_merge_marks_owns_nothing(self, workshop):
        workshop.build("llama_cpu")
        lock = workshop.generated / "llama_cpu/gen.lock"
        lock.write_text("<<<<<<< ours\n" + lock.read_text())
        workshop.run(*BUILD)
        assert json.loads(lock.read_text()), "all files were as built, so only the lock was written"
        lock.write_text("<<<<<<< ours\n" + lock.read_text())
        workshop.source("fragments/train/loop.py", "x = 1\n")
        workshop.run(*BUILD, code=2)

    def test_lock_cannot_make_a_build_delete_outside(self, workshop):
        workshop.build("llama_cpu")
        victim = workshop.root / "victim.py"
        victim.write_text("")
        lock = workshop.generated / "llama_cpu/gen.lock"
        table = json.loads(lock.read_text())
        table["outputs"]["../../victim.py"] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        lock.write_text(json.dumps(table))
        workshop.run(*BUILD)
        assert victim.exists()


class TestInterrupted:
    def test_next_build_mends_a_build_cut_short(self, workshop, monkeypatch):
        workshop.build("llama_cpu")
        workshop.source("fragments/model/rope.py", "x = 1\n")
        workshop.source("fragments/train/loop.py", "y = 1\n")
        replace, done = write.replace_file, []

        def replace_some(folder, path, data):
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(path)
            replace(folder, path, data)

        monkeypatch.setattr(write, "replace_file", replace_some)
        workshop.run(*BUILD, code=130)
        assert done[0] == JOURNAL and "model.py" in done
        monkeypatch.setattr(write, "replace_file", replace)
        assert "cut short" in workshop.run("check", code=1).stdout
        # the sources move on: the half-written file is neither what the lock says nor what is made now
        workshop.source("fragments/model/rope.py", "x = 2\n")
        workshop.run(*BUILD)
        assert "x = 2" in (workshop.generated / "llama_cpu/model.py").read_text()
        assert sorted(workshop.tree("llama_cpu")) == PACKAGE
        workshop.run("check")

    def test_journal_does_not_outlive_the_next_build(self, workshop):
        workshop.build("llama_cpu")
        folder = workshop.generated / "llama_cpu"
        (folder / JOURNAL).write_bytes((folder / "gen.lock").read_bytes())
        workshop.run(*BUILD)
        assert not (folder / JOURNAL).exists()

    def test_full_disk_is_an_error_and_leaves_the_old_lock(self, workshop, monkeypatch):
        workshop.build("llama_cpu")
        before = workshop.tree("llama_cpu")["gen.lock"]
        workshop.source("fragments/model/rope.py", "x = 1\n")

        def fail(folder, path, data):
            raise OSError(28, "No space left on device", str(folder / path))

        monkeypatch.setattr(write, "replace_file", fail)
        result = workshop.run(*BUILD, code=2)
        assert result.stderr.startswith("error: generated/llama_cpu/.gen.pending: cannot be written: No space left")
        assert workshop.tree("llama_cpu")["gen.lock"] == before


class TestPlaces:
    def test_package_folder_is_a_link(self, workshop):
        workshop.generated.mkdir()
        (workshop.root / "real").mkdir()
        (workshop.generated / "llama_cpu").symlink_to(workshop.root / "real")
        result = workshop.run(*BUILD, code=2)
        assert "generated/llama_cpu: is a symbolic link" in result.stderr
        assert not list((workshop.root / "real").iterdir())

    @pytest.mark.parametrize("place", ["generated", "generated/llama_cpu"])
    def test_folder_is_a_file(self, workshop, place):
        path = workshop.root / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        assert f"{place}: is a file where gen needs a folder" in workshop.run(*BUILD, code=2).stderr

    def test_folder_where_a_file_goes(self, workshop):
        (workshop.generated / "llama_cpu/model.py").mkdir(parents=True)
        assert "is a folder where gen makes a file" in workshop.run(*BUILD, "--force", code=2).stderr

    @pytest.mark.parametrize("kind", ["file", "symbolic link"])
    def test_file_or_link_where_a_folder_goes(self, workshop, kind):
        docs = workshop.generated / "llama_cpu/docs"
        docs.parent.mkdir(parents=True)
        docs.write_text("") if kind == "file" else docs.symlink_to(workshop.root)
        stderr = workshop.run(*BUILD, "--force", code=2).stderr
        assert f"generated/llama_cpu/docs: is a {kind} where gen needs a folder" in stderr

    def test_linked_file_is_replaced_only_by_force(self, workshop):
        workshop.build("llama_cpu")
        model, mine = workshop.generated / "llama_cpu/model.py", workshop.root / "mine.py"
        mine.write_bytes(model.read_bytes())
        model.unlink()
        model.symlink_to(mine)
        assert "model.py is a symbolic link" in workshop.run(*BUILD, code=2).stderr
        workshop.run(*BUILD, "--force")
        assert not model.is_symlink() and mine.exists()

    @pytest.mark.parametrize("name", [".gen.tmp", JOURNAL, "gen.lock", "gen.map"])
    def test_link_is_never_written_through(self, workshop, name):
        workshop.build("llama_cpu")
        victim = workshop.root / "victim.py"
        victim.write_text("mine\n")
        link = workshop.generated / "llama_cpu" / name
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        if name != "gen.lock":  # without it gen would not know the changed file for its own
            workshop.source("fragments/model/rope.py", "x = 1\n")
        workshop.run(*BUILD)
        assert victim.read_text() == "mine\n" and not link.is_symlink()
        workshop.run("check")

    def test_new_does_not_write_through_a_link(self, workshop, monkeypatch):
        library = SimpleNamespace(architectures=lambda: ())
        monkeypatch.setattr("generator.disk.project.Project.library", lambda project: library)
        monkeypatch.setattr("generator.commands.new._families", lambda *_: ["llama"])
        monkeypatch.setattr("generator.commands.new.fit", lambda *_: 'title = "Mine"\n')
        link, outside = workshop.root / "templates/architectures/mine.toml", workshop.root / "outside.toml"
        link.parent.mkdir(parents=True)
        link.symlink_to(outside)
        (workshop.root / "config.json").write_text('{"model_type": "llama"}')
        result = workshop.run("new", "--from-hf", "config.json", "--target=cpu", "--name=mine", code=2)
        assert "mine.toml: File exists" in result.stderr and not outside.exists()

    def test_output_folder_that_leads_out_of_the_project(self, workshop, tmp_path):
        (tmp_path / "outside").mkdir()
        workshop.generated.symlink_to(tmp_path / "outside")
        for words in BUILD, ("check",):
            assert "generated: is a symbolic link that leads out of the project" in workshop.run(*words, code=2).stderr
        assert not list((tmp_path / "outside").iterdir())

    def test_folder_that_cannot_be_made(self, workshop):
        result = workshop.run(*BUILD, "--out", "/proc/nowhere", code=2)
        assert result.stderr.startswith("error: /proc/nowhere")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_unwritable_folder(self, workshop):
        workshop.generated.mkdir(mode=0o555)
        assert "cannot be written: Permission denied" in workshop.run(*BUILD, code=2).stderr


class TestAll:
    NAMES = ("llama_cpu", "llama_gpu", "plain_cpu", "plain_gpu")

    def test_builds_what_packages_toml_lists(self, workshop):
        workshop.list_packages(*self.NAMES)
        result = workshop.run("build", "--all")
        assert [line.split(":")[0] for line in result.stdout.splitlines()] == [f"generated/{n}" for n in self.NAMES]
        assert result.stderr.splitlines()[0] == "[1/4] llama_cpu: 6 written, 0 unchanged"
        workshop.run("check")

    def test_parallel_and_single_builds_make_the_same(self, workshop):
        workshop.build(*self.NAMES)
        single = {name: workshop.tree(name) for name in self.NAMES}
        for name in self.NAMES:
            workshop.remove(name)
        workshop.list_packages(*self.NAMES)
        workshop.run("build", "--all")
        assert {name: workshop.tree(name) for name in self.NAMES} == single

    def test_without_a_list_builds_what_was_built_before(self, workshop):
        workshop.build("llama_cpu", "plain_gpu")
        workshop.source("fragments/model/attention.py", "x = 1\n")
        workshop.run("build", "--all")
        assert "x = 1" in (workshop.generated / "plain_gpu/model.py").read_text()
        assert "x = 1" in (workshop.generated / "llama_cpu/model.py").read_text()

    def test_one_mistake_does_not_stop_the_others(self, workshop):
        workshop.list_packages("llama_cpu", "lama_cpu", "plain_cpu")
        result = workshop.run("build", "--all", code=2)
        assert "error: generated/packages.toml: unknown architecture 'lama'" in result.stderr
        assert (workshop.generated / "plain_cpu/model.py").exists()

    @pytest.mark.parametrize("signal", [9, 15])
    def test_no_process_outlives_the_command(self, workshop, signal):
        workshop.list_packages("llama_cpu", "plain_cpu")
        command = [sys.executable, "-c", SLOW, str(workshop.builtin)]
        parent = subprocess.Popen(command, cwd=workshop.root, env={"PYTHONPATH": REPOSITORY}, stdout=subprocess.PIPE)
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert parent.pid not in workers
        parent.send_signal(signal)
        assert parent.wait() == -signal
        closed, _, _ = select.select([parent.stdout], [], [], 10)
        if not closed:
            for worker in workers:
                os.kill(worker, 9)
        assert closed, "the processes still held the pipe"
        parent.stdout.close()

    def test_process_that_is_killed_is_an_error(self, workshop, monkeypatch):
        monkeypatch.setattr("generator.commands.build.weave", lambda *_: os.kill(os.getpid(), 9))
        workshop.list_packages("llama_cpu", "plain_cpu")
        assert "a process that weaves was killed" in workshop.run("build", "--all", code=2).stderr

    def test_nothing_to_build(self, workshop):
        assert "there is no package to build" in workshop.run("build", "--all", code=2).stderr


class TestFastPath:
    """A build is skipped only when nothing that shapes the output has changed."""

    def test_generator_changed(self, workshop, count_weaving, monkeypatch):
        workshop.build("llama_cpu")
        monkeypatch.setattr("generator.disk.lock.generator_hash", lambda: "0" * 64)
        workshop.run(*BUILD)
        assert len(count_weaving) == 2

    def test_tool_changed(self, workshop, count_weaving, monkeypatch):
        workshop.build("llama_cpu")
        versions = {"jinja2": "99", "libcst": "99", "pytokens": "99", "ruff": "99"}
        monkeypatch.setattr("generator.disk.lock.tool_versions", lambda: versions)
        workshop.run(*BUILD)
        assert len(count_weaving) == 2

    def test_every_input_counts(self, workshop, count_weaving):
        workshop.build("llama_cpu")
        inputs = json.loads(workshop.tree("llama_cpu")["gen.lock"])["inputs"]
        for number, path in enumerate(inputs, 2):
            source = workshop.builtin / path
            source.write_text(source.read_text() + "# more\n")
            workshop.run(*BUILD)
            assert len(count_weaving) == number, path

    def test_source_that_takes_no_part_does_not_count(self, workshop, count_weaving):
        workshop.build("llama_cpu")
        workshop.source("fragments/model/unused.py", "x = 1\n")
        workshop.source("fragments/kernels/gpu.py", "x = 1\n")
        workshop.run(*BUILD)
        assert len(count_weaving) == 1

    def test_generator_hash_covers_what_weaving_imports(self, tmp_path):
        """At the top or inside a function; nothing else of gen, nor the library that an installed one carries."""
        package = tmp_path / "gen"
        texts = {
            "__init__.py": "",
            "weaver.py": "from gen.weave import (\n    link,  # first\n    order,\n)\nimport gen.errors, os\n",
            "weave/__init__.py": "",
            "weave/link.py": "def f():\n    from gen.code.late import name as other  # late\n",
            "weave/order.py": "",
            "code/late.py": "import os\n",
            "errors.py": "",
        }
        others = ["commands/view.py", "code/other.py", "_library/fragments/rope.py"]
        for path in (*texts, *others):
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text(texts.get(path, ""))
        assert modules_behind(package, "weaver") == sorted(texts)
        before = generator_hash(package)
        for path in (*others, *texts):
            (package / path).write_text(texts.get(path, "") + "# a comment\n")
            after = generator_hash(package)
            assert (after == before) == (path in others), path
            before = after


def test_unknown_names(workshop):
    assert (
        "unknown architecture 'lama'\n  Did you mean llama?"
        in workshop.run("build", "lama", "--target=cpu", code=2).stderr
    )
    assert "unknown target 'gpux'\n  Did you mean gpu" in workshop.run("build", "llama", "--target=gpux", code=2).stderr
    workshop.run("build", "../../evil", "--target=cpu", code=2)
    assert not Path("generated").exists()


@pytest.mark.parametrize("words", [["build"], ["build", "llama"], ["build", "--all", "llama"]])
def test_incomplete_command(workshop, words):
    assert "build needs an architecture and a target, or --all" in workshop.run(*words, code=2).stderr


def test_note_for_a_package_that_is_not_listed(workshop):
    workshop.list_packages("plain_cpu")
    result = workshop.run(*BUILD)
    assert "llama_cpu is not in generated/packages.toml" in result.stderr
    assert 'architecture = "llama"\ntarget = "cpu"' in result.stderr
