"""gen pull --as: a fragment that only one architecture selects. Building gives the edit, and changes no other package."""

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
ENTRY = '\n[[package]]\narchitecture = "{}"\ntarget = "{}"\n'


def line_of(repository: Repository, text: str, path: str = ONE) -> str:
    """Returns FILE:LINE of the only line with a text."""
    (number,) = [n for n, line in enumerate(repository.read(path).split("\n"), 1) if text in line]
    return f"{path}:{number}"


def content(repository: Repository, name: str, headers: bool = True) -> dict[str, str]:
    """Returns the files of a package without gen's records, and without the comments at the top if asked."""
    files = {path: data.decode() for path, data in repository.package(name).items() if path not in RECORDS}
    return files if headers else {path: re.sub(r"^(#.*\n)*", "", text) for path, text in files.items()}


def check_fragment(repository: Repository, package: str, *words: str, also: tuple[str, ...] = ()) -> None:
    """Pulls an edit into a fragment; checks that a fresh build gives the edit, and the other packages as before."""
    names = [path.name for path in (repository.root / "generated").iterdir() if path.is_dir() and path.name != package]
    edited, others = content(repository, package, headers=False), {name: content(repository, name) for name in names}
    found = json.loads(repository.run("pull", package, "--as", MINE, "--json", "--apply", *words).stdout)
    assert (found["refused"], found["others"]) == ([], [])
    repository.run("check", "--full")
    shutil.rmtree(repository.root / "generated" / package)
    repository.run("build", "--all")
    assert content(repository, package, headers=False) == edited
    assert {name: content(repository, name) for name in names} == others
    changed = {line[3:] for line in repository.git("status", "--short", "-uall").splitlines()}
    file = f"templates/architectures/{package.rpartition('_')[0]}.toml"
    assert {path for path in changed if not path.startswith("generated/")} == {MINE, file, *also}


def check_error(repository: Repository, *words: str) -> str:
    """Returns the error of a pull, which must write nothing."""
    before = repository.git("status", "--short", "-uall"), repository.git("diff")
    error = repository.run("pull", *words, "--apply", code=2).stderr
    assert (repository.git("status", "--short", "-uall"), repository.git("diff")) == before
    return error


def add_package(repository: Repository, architecture: str, target: str) -> None:
    listed = repository.read("generated/packages.toml")
    repository.write("generated/packages.toml", listed + ENTRY.format(architecture, target))
    repository.run("build", "--all")
    repository.commit(f"{architecture} {target}")


class TestMiniature:
    @pytest.mark.parametrize(
        ("old", "new", "splice"),
        [
            (  # below the statements of another fragment
                "    y = y * y\n",
                "    y = y * y\n    y = y - 9 * math.e  # less\n",
                '@splice("scale.more", after="shift")\ndef _(y):\n    y = y - 9 * math.e  # less\n',
            ),
            (
                "    y = y + 1\n",
                "    y = y - 9\n    y = y + 1\n",
                '@splice("scale.more", before="shift")\ndef _(y):\n    y = y - 9\n',
            ),
            (  # of a string, no line is moved
                "    y = y + 1\n",
                '    y = y - len("""9\n  b""")\n    y = y + 1\n',
                '@splice("scale.more", before="shift")\ndef _(y):\n    y = y - len("""9\n  b""")\n',
            ),
            # `z = y + 0` and `return z` were joined to one line
            ("return y + 0", "return y + 9", '@splice("scale.result")\ndef _(y, z):\n    z = y + 9\n'),
        ],
    )
    def test_splice(self, repository, old, new, splice):
        repository.replace(ONE, old, new)
        check_fragment(repository, "one_any", "--line", line_of(repository, "9"), "--title", "Less of it")
        imported = "import math\n\n" if "math" in new else ""
        assert repository.read(MINE) == (
            f'"""Less of it."""\n\n{imported}from generator.language import splice\n\n\n{splice}'
        )
        assert 'fragments = ["model/net", "model/shift", "model/mine"]\n' in repository.read(ARCHITECTURE)

    @pytest.fixture
    def apart(self, repository):
        """A host in which weaving joins no `z = ...` and `return z` to one line."""
        repository.replace(NET, "    return z\n", "    assert z\n    return z\n")
        repository.run("build", "--all")
        repository.commit("no line is joined")
        return repository

    def test_around_a_block(self, apart):
        apart.replace(ONE, "    z = y + 0\n", "    if y > 1:\n        z = y + 0\n    else:\n        z = -y\n")
        check_fragment(apart, "one_any", "--line", line_of(apart, "if y > 1"))
        body = "    if y > 1:\n        proceed()\n    else:\n        z = -y\n"
        assert apart.read(MINE).endswith(f'import proceed, splice\n\n\n@splice("scale.result")\ndef _(y, z):\n{body}')

    def test_value_that_is_filled_in(self, apart):
        """By default the fragment gets what cannot go home, as the refusal of plain pull advises."""
        apart.replace(NET, "z = y + 0", 'z = y + setting("gain")')
        apart.run("build", "--all")
        apart.commit("a setting")
        apart.replace(ONE, "z = y + 2", "z = y + 7")
        (refused,) = json.loads(apart.run("pull", "one_any", "--json", code=1).stdout)["refused"]
        assert refused["remedy"].endswith(
            "The nearest join point is scale.result, which shows y, z; for one architecture alone: "
            f"gen pull one_any --as fragments/model/NAME.py --line {line_of(apart, 'y + 7').split('/')[-1]}"
        )
        check_fragment(apart, "one_any")
        assert "    z = y + 7\n" in apart.read(MINE)

    def test_others_go_home_and_the_refused_stay(self, repository):
        repository.replace(ONE, "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        repository.replace(ONE, "# up", "# upward")
        repository.replace(ONE, "x = x * 2", "x = x * 7")
        words = "--as", MINE, "--line", line_of(repository, "y - 3"), "--apply", "--json"
        found = json.loads(repository.run("pull", "one_any", *words, code=1).stdout)
        assert (found["home"], [one["name"] for one in found["others"]]) == (2, ["two_any"])
        assert "the weaver makes this line" in found["refused"][0]["reason"]
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
        check_fragment(repository, "one_any", "--line", line_of(repository, "y + 7"))
        assert repository.read(ARCHITECTURE) == text.replace('shift"  # ]\n', 'shift",  # ]\n    "model/mine"\n')

    def test_another_target_does_not_get_it(self, repository):
        repository.write("targets/far/target.toml", repository.read("targets/any/target.toml"))
        add_package(repository, "one", "far")
        repository.replace(ONE, "return y + 0", "return y + 7")
        check_fragment(repository, "one_any", "--line", line_of(repository, "y + 7"))
        assert repository.read(ARCHITECTURE).endswith('\n[targets.any]\nfragments = ["model/mine"]\n')

    def test_nothing_is_written_without_apply(self, repository):
        repository.replace(ONE, "return y + 0", "return y + 7")
        printed = repository.run("pull", "one_any", "--as", MINE, "--line", line_of(repository, "y + 7")).stdout
        assert f"--- /dev/null\n+++ b/{MINE}\n" in printed and f"+++ b/{ARCHITECTURE}\n" in printed
        assert '+fragments = ["model/net", "model/shift", "model/mine"]\n' in printed
        assert repository.git("status", "--short").split() == ["M", ONE]


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("y = y * y", "y = y * x", "it is at no join point; the nearest is scale.result, which shows y, z"),
            ("y = y * y\n", "y = y * y\n    y = x + 9\n", "at scale.more, which shows y, it would not weave: "),
            ("y = y * y\n", "y = y * y\n    y = y*9\n", "of model.py would be 'y = y * 9'"),
            ("y = y * y\n", "y = y * y\n    y = (9\n", "not valid Python"),
            ("x = x * 2", "x = x * 9", "it is at no join point"),
        ],
    )
    def test_reason(self, repository, old, new, reason):
        repository.replace(ONE, old, new)
        where = line_of(repository, "9" if "9" in new else "y * x")
        assert reason in check_error(repository, "one_any", "--as", MINE, "--line", where)

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (("--as", "mine.py"), "is not the path of a fragment"),
            (("--as", ""), "is not the path of a fragment"),
            (("--as", "../fragments/model/mine.py"), "is not the path of a fragment"),
            (("--as", "fragments/model/__init__.py"), "is not the path of a fragment"),
            (("--as", "fragments/other/mine.py"), "no file of a package has fragments of other/"),
            (("--as", NET), "exists already"),
            (("--as", MINE, "--title", 'a "title"'), "is not a title"),
            (("--as", MINE, "--line", "model.py:3"), "was not edited"),
            (("--as", MINE, "--line", "model.py"), "names no line"),
            (("--as", MINE, "--line", "README.md:3"), "gen or a template makes this"),
            (("--as", MINE), "every edit can go to the fragments that it came from"),
            (("--line", "3"), "--line and --title are for a fragment"),
        ],
    )
    def test_words(self, repository, words, reason):
        repository.replace(ONE, "return y + 0", "return y + 7")
        if "README.md:3" in words:
            repository.replace("generated/one_any/README.md", "Made for", "Built for")
        assert reason in check_error(repository, "one_any", *words)

    def test_base_of_another_architecture(self, repository):
        repository.write("templates/architectures/heir.toml", 'base = "one"\ntitle = "Heir"\n')
        add_package(repository, "heir", "any")
        repository.replace(ONE, "return y + 0", "return y + 7")
        error = check_error(repository, "one_any", "--as", MINE, "--line", line_of(repository, "y + 7"))
        assert "heir_any would get it too: one is the base of heir" in error
        assert 'without = ["model/mine"] in templates/architectures/heir.toml' in error
        repository.replace(ONE, "return y + 7", "return y + 0")
        repository.replace(HEIR, "return y + 0", "return y + 7")
        check_fragment(repository, "heir_any", "--line", line_of(repository, "y + 7", HEIR))
        assert repository.read("templates/architectures/heir.toml").endswith('fragments = ["model/mine"]\n')


class TestUserProject:
    """gen is installed: its fragments and architectures do not belong to the project."""

    @pytest.fixture
    def project(self, tmp_path, monkeypatch) -> Repository:
        Repository(tmp_path / "installed")
        monkeypatch.setattr("generator.disk.project.builtin_root", lambda: tmp_path / "installed")
        made = empty_project(tmp_path / "mine")
        made.write(
            "fragments/model/less.py",
            '"""Less."""\n\nfrom generator.language import splice\n\n\n'
            '@splice("scale.result")\ndef _(y, z):\n    z = y - 1  # less\n',
        )
        made.write("templates/architectures/heir.toml", 'base = "one"\ntitle = "Heir"\nfragments = ["model/less"]\n')
        made.write("generated/packages.toml", ENTRY.format("one", "any"))
        monkeypatch.chdir(made.root)
        add_package(made, "heir", "any")
        return made

    def test_plain_pull_and_pull_as_agree(self, project):
        """The refusal of an edit of gen's fragment has the command that makes a fragment of it."""
        project.replace(HEIR, "    y = y + 1\n", "    y = y - 3\n    y = y + 1\n")
        project.replace(HEIR, "# less", "# fewer")
        found = json.loads(project.run("pull", "heir_any", "--json", code=1).stdout)
        (one,) = found["refused"]
        assert found["home"] == 1, "of the project's own fragment"
        assert one["reason"] == "fragments/model/net.py: is part of gen and not of this project"
        assert one["remedy"].startswith("Keep it in the package: gen own heir_any. The nearest join point is ")
        assert "gen pull heir_any --as fragments/model/NAME.py" in one["remedy"]
        check_fragment(project, "heir_any", also=("fragments/model/less.py",))
        assert project.read(MINE).endswith('@splice("scale.more", before="shift")\ndef _(y):\n    y = y - 3\n')

    def test_architecture_of_gen(self, project):
        """Both commands give the same advice, and it works."""
        project.replace(ONE, "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        before = project.git("status", "--short")
        (one,) = json.loads(project.run("pull", "one_any", "--apply", "--json", code=1).stdout)["refused"]
        error = " ".join(check_error(project, "one_any", "--as", MINE).split())
        assert "templates/architectures/one.toml: is part of gen and not of this project" in error
        assert one["remedy"].split(" The nearest")[0] in error and project.git("status", "--short") == before
        title, base = re.search(r'(title = ".*?") and (base = ".*?") to', one["remedy"]).groups()
        project.git("checkout", "-q", ".")
        project.write("templates/architectures/my_one.toml", f"{title}\n{base}\n")
        add_package(project, "my_one", "any")
        project.replace("generated/my_one_any/model.py", "    y = y * y\n", "    y = y * y\n    y = y - 3\n")
        check_fragment(project, "my_one_any")


def empty_project(root: Path) -> Repository:
    made = Repository.__new__(Repository)
    made.root = root
    made.write("gen.toml", "")
    made.git("init", "-q", "-b", "main")
    for key, value in (("user.name", "A"), ("user.email", "a@b.c")):
        made.git("config", key, value)
    return made


EXPECTED = '''\
"""Mine."""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import attend


@splice("Attention.parameters")
def _(self):
    self.tilt = nnx.Param(jnp.ones(()), axes=())


@splice("Attention.attend")
def _(self, q, k, v, context, segment_ids):
    q = q * self.tilt[...]
    context = attend(q, k, jnp.tanh(v), segment_ids)  # [B, T, N, H]


@splice("FeedForward.activation")
def _(gate, up, h):
    h = jax.nn.gelu(gate) * up
'''


@pytest.mark.slow
def test_library(tmp_path, monkeypatch):
    """A new attribute and changed expressions, at points with other splices and with a value that is threaded."""
    made, model = empty_project(tmp_path), "generated/llama3_tpu/model.py"
    for folder in ("fragments", "templates", "targets"):
        shutil.copytree(LIBRARY / folder, made.root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("generator.disk.project.builtin_root", lambda: made.root)
    monkeypatch.chdir(made.root)
    made.write("generated/packages.toml", "")
    add_package(made, "llama3", "tpu")
    made.replace(model, "h = jax.nn.silu(gate) * up", "h = jax.nn.gelu(gate) * up")
    made.replace(model, "context = attend(q, k, v, segment_ids)", "context = attend(q, k, jnp.tanh(v), segment_ids)")
    rotation = "        q, k = rotate(q, angles), rotate(k, angles)\n"
    made.replace(model, rotation, f"{rotation}        q = q * self.tilt[...]\n")
    text = made.read(model)
    out = next(line for line in text.split("\n") if 'self.out = Linear("BTNH' in line)
    made.replace(model, out, f"{out}\n        self.tilt = nnx.Param(jnp.ones(()), axes=())")
    texts = "gelu", "tanh", "self.tilt = ", "self.tilt[...]"
    check_fragment(made, "llama3_tpu", *(word for one in texts for word in ("--line", line_of(made, one, model))))
    assert made.read(MINE) == EXPECTED
