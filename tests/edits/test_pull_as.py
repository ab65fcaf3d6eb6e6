"""gen pull --as: a fragment that one architecture alone selects. Building gives the edit, and no other package."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from repository import Repository

ONE, TWO = "generated/one_any/model.py", "generated/two_any/model.py"
HEIR = "generated/heir_any/model.py"
NET, MINE = "fragments/model/net.py", "fragments/model/mine.py"
ARCHITECTURE = "templates/architectures/one.toml"
LIBRARY = Path(__file__).resolve().parents[2]
RECORDS = "gen.lock", "gen.map"


def line(repository: Repository, text: str, path: str = ONE) -> str:
    """The number of the one line that has a text."""
    (found,) = [n for n, line in enumerate(repository.read(path).split("\n"), 1) if text in line]
    return str(found)


def content(repository: Repository, name: str) -> dict[str, str]:
    """The files of a package without what gen keeps of it: the records, and the fragments at the top of each file."""
    found = {}
    for path, data in repository.package(name).items():
        lines = data.decode().split("\n")
        first = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0) if path.endswith(".py") else 0
        found[path] = "\n".join(lines[first:])
    return {path: text for path, text in found.items() if path not in RECORDS}


def check_apart(repository: Repository, package: str, *words: str, also: tuple[str, ...] = ()) -> dict:
    """The edit of a package becomes a fragment; building from nothing gives the edit, and the other packages as before."""
    names = [path.name for path in (repository.root / "generated").iterdir() if path.is_dir() and path.name != package]
    edited, others = content(repository, package), {name: repository.package(name) for name in names}
    found = json.loads(repository.run("pull", package, "--as", MINE, "--json", "--apply", *words).stdout)
    assert (found["refused"], found["others"]) == ([], [])
    shutil.rmtree(repository.root / "generated" / package)
    repository.run("build", "--all")
    assert content(repository, package) == edited
    for name, before in others.items():
        after = repository.package(name)
        assert {p: d for p, d in after.items() if p not in RECORDS} == {
            p: d for p, d in before.items() if p not in RECORDS
        }
    repository.run("check", "--full")
    changed = {line[3:] for line in repository.git("status", "--short", "-uall").splitlines()}
    file = f"templates/architectures/{package.rpartition('_')[0]}.toml"
    assert {path for path in changed if not path.startswith("generated/")} == {MINE, file, *also}
    return found


def check_error(repository: Repository, *words: str) -> str:
    """A mistake is told, and nothing is written."""
    before = repository.git("status", "--short", "-uall"), repository.git("diff")
    said = repository.run("pull", *words, "--apply", code=2).stderr
    assert (repository.git("status", "--short", "-uall"), repository.git("diff")) == before
    return said


class TestMiniature:
    def test_statement_at_a_point(self, repository):
        """It stands below what another fragment has there."""
        repository.replace(ONE, "    y = y * y\n", "    y = y * y\n    y = y - math.e  # less\n")
        check_apart(repository, "one_any", "--line", f"{ONE}:{line(repository, 'math.e')}", "--title", "Less of it")
        assert repository.read(MINE) == (
            '"""Less of it."""\n\nimport math\n\nfrom generator.language import splice\n\n\n'
            '@splice("scale.more", after="shift")\ndef _(y):\n    y = y - math.e  # less\n'
        )
        assert 'fragments = ["model/net", "model/shift", "model/mine"]\n' in repository.read(ARCHITECTURE)

    def test_statement_above_that_of_another_fragment(self, repository):
        repository.replace(ONE, "    y = y + 1\n", "    y = y - 2\n    y = y + 1\n")
        check_apart(repository, "one_any", "--line", line(repository, "y - 2"))
        assert '@splice("scale.more", before="shift")\ndef _(y):\n    y = y - 2\n' in repository.read(MINE)

    def test_statement_of_a_block(self, repository):
        """`z = y + 0` and `return z` were joined to one line."""
        repository.replace(ONE, "return y + 0", "return y + 7")
        check_apart(repository, "one_any", "--line", line(repository, "y + 7"))
        assert repository.read(MINE).endswith('@splice("scale.result")\ndef _(y, z):\n    z = y + 7\n')

    def test_around_a_block(self, repository):
        repository.replace(NET, "    return z\n", "    assert z\n    return z\n")
        repository.run("build", "--all")
        repository.commit("no line is joined")
        repository.replace(ONE, "    z = y + 0\n", "    if y > 1:\n        z = y + 0\n    else:\n        z = -y\n")
        check_apart(repository, "one_any", "--line", line(repository, "if y > 1"))
        assert repository.read(MINE).endswith(
            "def _(y, z):\n    if y > 1:\n        proceed()\n    else:\n        z = -y\n"
        )

    def test_value_that_is_filled_in(self, repository):
        """By default it is for what cannot go home, and plain pull says so."""
        repository.replace(NET, "z = y + 0", 'z = y + setting("gain")')
        repository.replace(NET, "    return z\n", "    assert z\n    return z\n")
        repository.run("build", "--all")
        repository.commit("a setting")
        repository.replace(ONE, "z = y + 2", "z = y + 7")
        (refused,) = json.loads(repository.run("pull", "one_any", "--json", code=1).stdout)["refused"]
        offer = f"gen pull one_any --as fragments/model/NAME.py --line model.py:{line(repository, 'y + 7')}"
        assert refused["remedy"].endswith(f"For this architecture alone: {offer}")
        check_apart(repository, "one_any")
        assert "    z = y + 7\n" in repository.read(MINE)

    def test_others_go_home_and_the_refused_stay(self, repository):
        repository.replace(ONE, "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        repository.replace(ONE, "# up", "# upward")
        repository.replace(ONE, "x = x * 2", "x = x * 7")
        found = json.loads(
            repository.run(
                "pull", "one_any", "--as", MINE, "--line", line(repository, "y - 3"), "--apply", "--json", code=1
            ).stdout
        )
        assert (found["home"], [one["name"] for one in found["others"]]) == (2, ["two_any"])
        assert "a value that is filled in" in found["refused"][0]["reason"]
        assert "# upward" in repository.read(NET) and "y - 3" in repository.read(MINE)
        assert "# upward" in repository.read(TWO) and "y - 3" not in repository.read(TWO)
        assert "x = x * 7" in repository.read(ONE)
        states = json.loads(repository.run("check", "--json", code=1).stdout)["findings"]
        assert [(one["state"], one["path"]) for one in states] == [("edited", ONE)]

    def test_architecture_file_keeps_its_layout(self, repository):
        text = (
            'title = "One"\nfragments = [\n    "model/net",  # first\n    "model/shift"  # ]\n]\n[settings]\ngain = 2\n'
        )
        repository.write(ARCHITECTURE, text)
        repository.run("build", "--all")
        repository.commit("a long list")
        repository.replace(ONE, "return y + 0", "return y + 7")
        check_apart(repository, "one_any", "--line", line(repository, "y + 7"))
        assert repository.read(ARCHITECTURE) == text.replace('shift"  # ]\n', 'shift",  # ]\n    "model/mine",\n')

    def test_another_target_does_not_get_it(self, repository):
        repository.write("targets/far/target.toml", repository.read("targets/any/target.toml"))
        entry = '\n[[package]]\narchitecture = "one"\ntarget = "far"\n'
        repository.write("generated/packages.toml", repository.read("generated/packages.toml") + entry)
        repository.run("build", "--all")
        repository.commit("a target")
        repository.replace(ONE, "return y + 0", "return y + 7")
        check_apart(repository, "one_any", "--line", line(repository, "y + 7"))
        assert repository.read(ARCHITECTURE).endswith('\n[targets.any]\nfragments = ["model/mine"]\n')

    def test_architecture_without_a_package_that_would_get_it(self, repository):
        repository.write("templates/architectures/heir.toml", 'base = "one"\ntitle = "Heir"\n')
        repository.replace(ONE, "return y + 0", "return y + 7")
        said = repository.run("pull", "one_any", "--as", MINE, "--line", line(repository, "y + 7")).stdout
        assert "heir, built for the same, would get it too" in said and 'without = ["model/mine"]' in said

    def test_nothing_is_written_without_apply(self, repository):
        repository.replace(ONE, "return y + 0", "return y + 7")
        shown = repository.run("pull", "one_any", "--as", MINE, "--line", line(repository, "y + 7")).stdout
        assert f"--- /dev/null\n+++ b/{MINE}\n" in shown and f"+++ b/{ARCHITECTURE}\n" in shown
        assert '+fragments = ["model/net", "model/shift", "model/mine"]\n' in shown
        assert repository.git("status", "--short").split() == ["M", ONE]


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("y = y * y", "y = y * x", "model/shift has it at the point scale.more, which holds no statements"),
            ("y = y * y\n", "y = y * y\n    y = x + 9\n", "would read x, and the point scale.more shows y"),
            ("y = y * y\n", "y = y * y\n    y = no + 9\n", "as a splice at scale.more it would not weave"),
            ("y = y * y\n", "y = y * y\n    y = y*9\n", "of model.py would be 'y = y * 9'"),
            ("y = y * y\n", "y = y * y\n    y = (9\n", "not valid Python"),
            ("x = x * 2", "x = x * 9", "it stands at no join point"),
        ],
    )
    def test_reason(self, repository, old, new, reason):
        repository.replace(ONE, old, new)
        where = line(repository, "9" if "9" in new else "y * x")
        assert reason in check_error(repository, "one_any", "--as", MINE, "--line", where)

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (("--as", "mine.py"), "is not the path of a fragment"),
            (("--as", "../fragments/model/mine.py"), "is not the path of a fragment"),
            (("--as", "fragments/model/__init__.py"), "is not the path of a fragment"),
            (("--as", "fragments/other/mine.py"), "no file of a package has fragments of other/"),
            (("--as", NET), "is there already"),
            (("--as", MINE, "--title", 'a "title"'), "is no title"),
            (("--as", MINE, "--line", "3"), "was not edited"),
            (("--as", MINE, "--line", "model.py"), "names no line"),
            (("--as", MINE), "every edit can go to the fragments that it came from"),
            (("--line", "3"), "--line and --title are for a fragment"),
        ],
    )
    def test_words(self, repository, words, reason):
        repository.replace(ONE, "return y + 0", "return y + 7")
        assert reason in check_error(repository, "one_any", *words)

    def test_line_of_a_template(self, repository):
        repository.replace("generated/one_any/README.md", "Made for", "Built for")
        assert "a template makes this file" in check_error(repository, "one_any", "--as", MINE, "--line", "README.md:3")

    def test_base_of_another_architecture(self, repository):
        repository.write("templates/architectures/heir.toml", 'base = "one"\ntitle = "Heir"\n')
        entry = '\n[[package]]\narchitecture = "heir"\ntarget = "any"\n'
        repository.write("generated/packages.toml", repository.read("generated/packages.toml") + entry)
        repository.run("build", "--all")
        repository.commit("an heir")
        repository.replace(ONE, "return y + 0", "return y + 7")
        said = check_error(repository, "one_any", "--as", MINE, "--line", line(repository, "y + 7"))
        assert "heir_any would get it too: one is the base of heir" in said
        assert 'without = ["model/mine"] in templates/architectures/heir.toml' in said
        repository.replace(ONE, "return y + 7", "return y + 0")
        repository.replace("generated/heir_any/model.py", "return y + 0", "return y + 7")
        check_apart(repository, "heir_any", "--line", line(repository, "y + 7", "generated/heir_any/model.py"))
        assert repository.read("templates/architectures/heir.toml").endswith('fragments = ["model/mine"]\n')


class TestProjectOfOnesOwn:
    """gen is installed: its fragments and architectures are not the project's to change."""

    @pytest.fixture
    def project(self, tmp_path, monkeypatch) -> Repository:
        Repository(tmp_path / "installed")
        monkeypatch.setattr("generator.disk.project.builtin_root", lambda: tmp_path / "installed")
        made = Repository.__new__(Repository)
        made.root = tmp_path / "mine"
        made.write("gen.toml", "")
        made.write(
            "fragments/model/less.py",
            '"""Less."""\n\nfrom generator.language import splice\n\n\n'
            '@splice("scale.result")\ndef _(y, z):\n    z = y - 1  # less\n',
        )
        made.write("templates/architectures/heir.toml", 'base = "one"\ntitle = "Heir"\nfragments = ["model/less"]\n')
        listed = [f'[[package]]\narchitecture = "{name}"\ntarget = "any"\n' for name in ("one", "heir")]
        made.write("generated/packages.toml", "\n".join(listed))
        monkeypatch.chdir(made.root)
        made.git("init", "-q", "-b", "main")
        for key, value in (("user.name", "A"), ("user.email", "a@b.c")):
            made.git("config", key, value)
        made.run("build", "--all")
        made.commit("start")
        return made

    def test_plain_pull_and_pull_as_agree(self, project):
        """An edit of gen's fragment is refused with the command that makes a fragment of it, which takes it by itself."""
        project.replace(HEIR, "    y = y + 1\n", "    y = y - 3\n    y = y + 1\n")
        project.replace(HEIR, "# less", "# fewer")
        found = json.loads(project.run("pull", "heir_any", "--json", code=1).stdout)
        (one,) = found["refused"]
        assert found["home"] == 1, "of the project's own fragment"
        assert "net.py:22, which is part of gen and not of this project" in one["reason"]
        where = line(project, "y - 3", HEIR)
        offer = f"gen pull heir_any --as fragments/model/NAME.py --line model.py:{where}"
        assert one["remedy"].endswith(f"gen own heir_any. For this architecture alone: {offer}")
        check_apart(project, "heir_any", also=("fragments/model/less.py",))
        assert project.read(MINE).endswith('@splice("scale.more", before="shift")\ndef _(y):\n    y = y - 3\n')

    def test_architecture_of_gen(self, project):
        """Both commands say the same, and it works."""
        project.replace(ONE, "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        before = project.git("status", "--short")
        (one,) = json.loads(project.run("pull", "one_any", "--apply", "--json", code=1).stdout)["refused"]
        said = check_error(project, "one_any", "--as", MINE)
        assert "templates/architectures/one.toml: is part of gen and not of this project" in said
        assert one["remedy"] in " ".join(said.split()) and project.git("status", "--short") == before
        title, base = re.search(r'(title = ".*?") and (base = ".*?") to', one["remedy"]).groups()
        project.git("checkout", "-q", ".")
        project.write("templates/architectures/my_one.toml", f"{title}\n{base}\n")
        entry = '\n[[package]]\narchitecture = "my_one"\ntarget = "any"\n'
        project.write("generated/packages.toml", project.read("generated/packages.toml") + entry)
        project.run("build", "--all")
        project.commit("of my own")
        project.replace("generated/my_one_any/model.py", "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        check_apart(project, "my_one_any")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The library itself, and three packages of it."""
    made = Repository.__new__(Repository)
    made.root = tmp_path_factory.mktemp("real")
    for folder in ("fragments", "templates", "targets"):
        shutil.copytree(LIBRARY / folder, made.root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    listed = [("llama3", "tpu"), ("llama3_lora", "tpu"), ("gpt2", "tpu")]
    entries = (f'[[package]]\narchitecture = "{one}"\ntarget = "{other}"\n' for one, other in listed)
    made.write("generated/packages.toml", "\n".join(entries))
    made.write("gen.toml", "")
    made.git("init", "-q", "-b", "main")
    made.git("config", "user.name", "A")
    made.git("config", "user.email", "a@b.c")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("generator.disk.project.builtin_root", lambda: made.root)
        patch.chdir(made.root)
        made.run("build", "--all")
        made.commit("start")
        yield made


@pytest.fixture
def library(real: Repository) -> Repository:
    """The same as it was built."""
    yield real
    real.git("checkout", "-q", ".")
    real.git("clean", "-qfd")


LORA, ROTATION = "generated/llama3_lora_tpu/model.py", "        q, k = rotate(q, angles), rotate(k, angles)\n"


@pytest.mark.slow
class TestLibrary:
    def test_statement_after_rotation(self, library):
        """Named, as plain pull would take it home to all packages with rotations."""
        library.replace(LORA, ROTATION, f"{ROTATION}        q = q * q.shape[-1] ** -0.25\n")
        check_apart(library, "llama3_lora_tpu", "--line", line(library, "-0.25", LORA))
        assert library.read(MINE).endswith(
            '@splice("Attention.heads", after="rope")\ndef _(q):\n    q = q * q.shape[-1] ** -0.25\n'
        )

    def test_other_activation_and_a_threaded_value(self, library):
        """The line that several packages share changes in one; the attention of training gets `segment_ids`."""
        library.replace(LORA, "h = jax.nn.silu(gate) * up", "h = jax.nn.gelu(gate) * up")
        attend = "context = attend(q, k, v, segment_ids)  # [B, T, N, H]"
        library.replace(LORA, attend, "context = attend(q, k, jnp.tanh(v), segment_ids)")
        lines = [word for text in ("gelu", "tanh") for word in ("--line", line(library, text, LORA))]
        check_apart(library, "llama3_lora_tpu", *lines)
        assert library.read(MINE) == (
            '"""Mine."""\n\nimport jax\nimport jax.numpy as jnp\n\nfrom generator.language import splice\n'
            "from generator.language.roles import attend\n\n\n"
            '@splice("Attention.attend", before="pages")\ndef _(q, k, v, context, segment_ids):\n'
            "    context = attend(q, k, jnp.tanh(v), segment_ids)\n\n\n"
            '@splice("FeedForward.activation")\ndef _(gate, up, h):\n    h = jax.nn.gelu(gate) * up\n'
        )

    def test_threaded_argument(self, library):
        library.replace(LORA, "        k = self.key(x)", "        k = self.key(x + 1)")
        text = library.read(LORA)
        at = text.index("    def __call__", text.index("class Attention("))
        library.write(LORA, text[:at] + text[at:].replace("pages: Pages | None,", "pages: Pages,", 1))
        where = line(library, "pages: Pages,", LORA)
        said = check_error(library, "llama3_lora_tpu", "--as", MINE, "--line", where)
        assert "it stands at no join point" in said

    def test_base(self, library):
        path = "generated/llama3_tpu/model.py"
        library.replace(path, ROTATION, f"{ROTATION}        q = q * 2\n")
        said = check_error(library, "llama3_tpu", "--as", MINE, "--line", line(library, "q * 2", path))
        assert "llama3_lora_tpu would get it too: llama3 is the base of llama3_lora" in said
