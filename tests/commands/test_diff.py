"""gen diff: of two packages by cause, and of the packages and a build."""

from __future__ import annotations

import json

import pytest
from conftest import weave_files

from generator.code.hunks import hunks
from generator.code.traced import Origin
from generator.commands.causes import find_differing_sources


class TestTwoPackages:
    def test_grouped_by_cause(self, workshop):
        workshop.build("llama_cpu", "plain_cpu")
        result = workshop.run("diff", "plain_cpu", "llama_cpu", code=1)
        assert "fragments/model/rope.py (Rotary positions): +4 -0 in 1 file\n  model.py\n" in result.stdout
        assert "    +     9     return x * angles\n" in result.stdout and "attend" not in result.stdout
        assert "are the same" in workshop.run("diff", "llama_cpu", "llama_cpu").stdout
        model = workshop.generated / "llama_cpu/model.py"
        model.write_text(model.read_text() + "mine = 1\n")
        result = workshop.run("diff", "plain_cpu", "llama_cpu", code=1)
        assert "note: generated/llama_cpu/model.py was edited" in result.stderr and "mine = 1" in result.stdout

    def test_by_folder_and_as_json(self, workshop):
        workshop.build("llama_cpu", "llama_gpu")
        result = workshop.run("diff", "generated/llama_cpu", "generated/llama_gpu", "--json", code=1)
        causes = {entry["source"]: entry for entry in json.loads(result.stdout)}
        assert causes["fragments/kernels/cpu.py"]["pieces"] == [
            {"path": "kernels.py", "removed": [[5, "    return query  # slow"]], "added": []}
        ]
        assert causes["fragments/kernels/cpu.py"]["lines_removed"] == 1
        assert causes["fragments/kernels/gpu.py"]["lines_added"] == 1
        assert list(causes)[-1] == "", "files without a line map come last"
        assert causes[""]["pieces"][0]["path"] == "docs/README.md"

    def test_file_in_one_package_only(self, workshop):
        workshop.build("llama_cpu")
        workshop.source("targets/gpu/target.toml", 'fragments = ["kernels/gpu"]\n')
        workshop.build("llama_gpu")
        result = workshop.run("diff", "llama_gpu", "llama_cpu", code=1)
        assert "fragments/train/loop.py (The loop): +5 -0 in 1 file\n  train.py\n" in result.stdout

    def test_line_of_a_host_is_laid_to_what_only_one_side_has(self):
        host, threaded = Origin("host.py", 3), Origin("packing.py", 9)
        assert find_differing_sources([[(0, host), (12, threaded)]], [[(0, host)]]) == ["packing.py"]
        assert find_differing_sources([[(0, host)]], [[(0, host), (12, threaded)]]) == ["host.py"]
        assert find_differing_sources([[]], [[(0, host)]]) == [""]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["lama_cpu", "plain_cpu"], "Did you mean llama_cpu"),
            (["llama_cpu"], "diff needs two packages or none"),
            (["llama_cpu", "plain_cpu"], "gen.map: is not the map that was built"),
            (["plain_cpu", "llama_gpu"], "model.py: is gone"),
        ],
    )
    def test_mistakes(self, workshop, words, said):
        workshop.build("llama_cpu", "plain_cpu", "llama_gpu")
        (workshop.generated / "llama_cpu/gen.map").write_text("{")
        (workshop.generated / "llama_gpu/model.py").unlink()
        assert said in workshop.run("diff", *words, code=2).stderr


class TestOfABuild:
    def test_same_change_in_many_packages_is_shown_once(self, workshop):
        workshop.build("llama_cpu", "llama_gpu", "plain_cpu")
        assert workshop.run("diff").stdout == "a build would change nothing\n"
        source = workshop.builtin / "fragments/model/attention.py"
        source.write_text(source.read_text().replace("query @ key", "key @ query"))
        stdout = workshop.run("diff", code=1).stdout
        assert stdout.count("+    return key @ query") == 1 and "(3 places in 3 packages)" in stdout
        assert "in llama_cpu, llama_gpu, plain_cpu" in stdout
        (change,) = json.loads(workshop.run("diff", "--json", code=1).stdout)["changes"]
        assert change["places"][1] == "generated/llama_gpu/model.py:5"
        changed = [line for line in change["text"].splitlines() if line[0] in "+-"]
        assert changed == ["-    return query @ key", "+    return key @ query"]

    def test_header_with_the_names_of_the_package_is_one_change(self, workshop, monkeypatch):
        workshop.build("llama_cpu", "plain_gpu")

        def weave(*arguments):
            package = weave_files(*arguments)
            package.files.update({path: text.replace("gen 0", "gen 1") for path, text in package.files.items()})
            return package

        monkeypatch.setattr("generator.disk.lock.hash_generator", lambda: "0" * 64)
        assert "a build would renew gen.lock and no other file" in workshop.run("diff", code=1).stdout
        monkeypatch.setattr("generator.commands.packages.weave_package", weave)
        assert "(6 places in 2 packages)" in workshop.run("diff", code=1).stdout

    def test_whole_files_packages_edits_and_mistakes(self, workshop):
        workshop.build("llama_cpu")
        workshop.list_packages("llama_cpu", "plain_cpu")
        model = workshop.generated / "llama_cpu/model.py"
        model.write_text(model.read_text() + "mine = 1\n")
        workshop.source("fragments/eval/loss.py", "x = 1\n")
        workshop.source("targets/cpu/target.toml", 'fragments = ["kernels/cpu", "eval/loss"]\n')
        stdout = workshop.run("diff", code=1).stdout
        assert "@@ generated/plain_cpu\na build would make this package" in stdout
        assert "@@ generated/llama_cpu/eval.py\na build would add this file" in stdout
        assert "@@ generated/llama_cpu/train.py\na build would remove this file" in stdout
        assert "-mine = 1" in stdout
        workshop.source("templates/architectures/llama.toml", 'fragments = ["model/nothing"]\n')
        assert "unknown fragment 'model/nothing'" in workshop.run("diff", code=2).stderr


def test_hunks_are_the_lines_that_differ():
    assert hunks(["a", "b", "c"], ["a", "x", "c", "d"]) == [(range(1, 2), range(1, 2)), (range(3, 3), range(3, 4))]
    assert hunks(["a"], ["a"]) == []
