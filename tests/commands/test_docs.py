"""Commands of the documentation: each is one that gen, make, a package or a benchmark has, with options that it takes.

What takes long is not run by `make test`: docs/checkpoint.md is by `make test-all`, as docs/add-a-family.md is by
tests/families/test_add_a_family.py; `make demo` does what README says.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from checkpoints import make_checkpoint, run, serving
from click.testing import CliRunner

from generator.commands.cli import gen

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# programs that are no part of Loomax, whose arguments are not checked
OTHERS = {"cd", "coverage", "curl", "echo", "git", "mkdir", "printf"}


def commands_of(text: str) -> list[list[str]]:
    """Returns the words of each command in blocks for a shell, and of each command of gen in the text."""
    found: list[list[str]] = []
    for language, block in re.findall(r"^```(sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        block = re.sub(r"(<<'END'\n).*?^END\n", r"\1", block, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
        lines = block.splitlines()
        for line in lines if language == "sh" else [line[2:] for line in lines if line.startswith("$ ")]:
            words = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
            words.whitespace_split = True
            command: list[str] = []
            for before, word in pairwise([";", *words, ";"]):
                if word in ("&&", "|", ";"):
                    found += [command]
                    command = []
                elif not re.fullmatch("[0-9]?[<>&]+[0-9]?", word) and not re.fullmatch("[<>]+", before):
                    command.append(word)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [words for words in found if words] + [
        shlex.split(re.sub(r"[\[\]]|\.\.\.", "", said)) for said in re.findall(r"`(gen [^`]+)`", prose)
    ]


def refusal(words: list[str]) -> str:
    """Explains why a command does not exist; returns "" if it does."""
    match words:
        case ["gen", name, *arguments]:
            return refusal_of_gen(name, arguments)
        case ["make", *targets]:
            there = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            return "" if there >= {*targets} else "no target of the Makefile"
        case ["pip", "install", *arguments]:
            return "".join(refusal_of_install(word) for word in arguments if not word.startswith("-"))
        case ["python", "-m", module, *arguments]:
            return refusal_of_module(module, arguments)
        case ["python", path, *_] if path.startswith("benchmarks/"):
            return "" if (ROOT / path).is_file() else "no such benchmark"
    return "" if words[0] in OTHERS or words == ["python", "-"] else "no program that is known here"


def refusal_of_gen(name: str, arguments: list[str]) -> str:
    if (command := gen.get_command(None, name)) is None:
        return "" if name == "--version" else "no command of gen"
    options = {option for parameter in command.params for option in parameter.opts}
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    return f"no options: {given - options}" if given - options else ""


def refusal_of_install(requirement: str) -> str:
    """Checks the extras of a folder with a pyproject.toml."""
    path, _, extras = requirement.rstrip("]").partition("[")
    if not path.startswith("."):
        return ""
    folder = next((it for it in (ROOT / path, ROOT / "generated" / path) if (it / "pyproject.toml").is_file()), None)
    if folder is None:
        return f"nothing to install at {path}"
    there = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return "" if {*filter(None, extras.split(","))} <= there.keys() else f"no extra {extras}"


def refusal_of_module(module: str, arguments: list[str]) -> str:
    """Checks a program of a package; for a package that is not built here, the program of llama2 on the same target.

    A program that only a part has is checked by the fragments, and so are flags of another architecture.
    """
    package, _, name = module.partition(".")
    file, built = f"{name.replace('.', '/')}.py", package
    if not (ROOT / "generated" / package).is_dir():
        built = f"llama2_{package.rpartition('_')[2]}"
    is_there = (ROOT / "generated" / built / file).is_file()
    if not is_there and file not in tomllib.loads((ROOT / "templates/package.toml").read_text())["folders"].values():
        return "no module of the package"
    is_same = package.rpartition("_")[0] == built.rpartition("_")[0]
    folder = f"generated/{built}" if is_there and is_same else "fragments"
    given = {word.partition("=")[0] for word in arguments if word.startswith("--") and word != "--"}
    unknown = {flag for flag in given if flag[2:].replace("-", "_") not in fields_of(folder)}
    return f"no flags: {unknown}" if unknown else ""


@cache
def fields_of(folder: str) -> frozenset[str]:
    """Returns the fields and parameters in a folder, which flags are named after."""
    texts = (path.read_text() for path in (ROOT / folder).rglob("*.py"))
    return frozenset(name for text in texts for name in re.findall(r"\b([a-z]\w*): ", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_there(page):
    refused = {shlex.join(words): reason for words in commands_of(page.read_text()) if (reason := refusal(words))}
    assert refused == {}


def test_a_command_that_is_not_there_is_found():
    text = "```sh\ngen bild x && python -m llama2_cpu.train --setps 3 | gen trace\n```\nand `gen check --ful`\n"
    reasons = [refusal(words) for words in commands_of(text)]
    assert reasons == ["no command of gen", "no flags: {'--setps'}", "", "no options: {'--ful'}"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page):
    assert len(page.read_text().splitlines()) <= 200


def test_the_first_fragment(tmp_path, monkeypatch):
    """Follows docs/fragments.md up to the package that it shows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gen.toml").write_text('generated = "generated"\n')
    page = (ROOT / "docs/fragments.md").read_text()
    for path, text in re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", page, re.DOTALL):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert "gen build llama2_head_norms --target=cpu\n" in page
    assert CliRunner().invoke(gen, ["build", "llama2_head_norms", "--target=cpu"]).exit_code == 0
    (shown,) = re.findall(r"reads\n\n```python\n(.*?)```", page, re.DOTALL)
    assert shown in (tmp_path / "generated/llama2_head_norms_cpu/model.py").read_text()


@pytest.mark.slow
def test_the_page_of_a_checkpoint(tmp_path):
    """Follows docs/checkpoint.md with random weights, on a CPU, up to the answer that the server gives to its curl."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/checkpoint.md").read_text(), re.DOTALL | re.MULTILINE)
    install, start, *middle, serve, ask = block.replace("gpu", "cpu").replace("--steps 100", "--steps 2").splitlines()
    assert install.startswith("pip install ") and serve.endswith(" --port 8000") and ask.startswith("curl ")
    make_checkpoint(tmp_path / "hf", "qwen3", max_position_embeddings=1024)
    printed = run(start, tmp_path).stdout.replace("--steps 100", "--steps 2")
    for command in middle:
        run(command, tmp_path / "generated")
    assert "\n".join(f"  {line}" for line in [*middle, serve]) in re.sub(r"\S+/python -m", "python -m", printed)
    with serving(serve, tmp_path / "generated") as port:
        answer = run(ask.replace("8000", port), tmp_path).stdout
    assert json.loads(answer)["choices"][0]["message"]["role"] == "assistant"
    (export,) = re.findall("^`(python.* export .*?)`", (ROOT / "docs/checkpoint.md").read_text(), re.MULTILINE)
    run(export.replace("gpu", "cpu"), tmp_path / "generated")
    assert (tmp_path / "tuned/model.safetensors").stat().st_size == (tmp_path / "hf/model.safetensors").stat().st_size
