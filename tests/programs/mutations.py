"""Changes of fragments with known verdicts; mutations.toml lists them."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from generator.commands.against import Report, against
from generator.disk.project import Project
from generator.programs.verdicts import DECODING, EVALUATION, HOST, INITIAL, TRAINING

ROOT = Path(__file__).resolve().parents[2]
ENTRY = {"T": TRAINING, "E": EVALUATION, "D": DECODING, "I": INITIAL}
PACKAGES = {
    "model/normalised_top_k": "qwen3_moe_cpu",
    "model/load_balance": "qwen3_moe_cpu",
    "kernels/attend_splash": "llama2_tpu",
    "compile/compile_tpu": "llama2_tpu",
    "train/flags_tpu": "llama2_tpu",
}


@dataclass(frozen=True)
class Mutation:
    """A change of one fragment.

    Attributes:
        expected: letters of entry points and a word of their verdict, such as "TE equal"; all others are the same
            program. H: host code changed.
        edits: a text of the fragment, its replacement at every occurrence, the next text, and so on.
    """

    fragment: str
    name: str
    expected: str
    edits: tuple[str, ...]

    @property
    def package(self) -> str:
        """Returns a package that selects the fragment."""
        return PACKAGES.get(self.fragment, "llama2_cpu")


MUTATIONS = [
    Mutation(fragment, name, expected, tuple(edits))
    for fragment, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
    for name, (expected, *edits) in rows.items()
]


def make_workplace(folder: Path, package: str) -> Path:
    """Creates a git repository with the library and one package of this repository."""
    architecture, _, target = package.rpartition("_")
    for name in ("fragments", "templates", "targets"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "gen.toml").write_text("")
    generated = folder / "generated"
    generated.mkdir()
    entry = f'[[package]]\narchitecture = "{architecture}"\ntarget = "{target}"\nparts = ["all"]\n'
    (generated / "packages.toml").write_text(entry)
    from generator.weaver import weave

    woven = weave(architecture, target, project(folder).library(), parts=("all",))
    for path, text in woven.files.items():
        (generated / package / path).parent.mkdir(parents=True, exist_ok=True)
        (generated / package / path).write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "as it is"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)
    return folder


def project(folder: Path) -> Project:
    return Project((folder,), folder, folder / "generated")


def mutate(folder: Path, mutation: Mutation) -> None:
    """Applies a mutation in a workplace."""
    path = folder / "fragments" / f"{mutation.fragment}.py"
    text = path.read_text()
    for old, new in zip(mutation.edits[::2], mutation.edits[1::2], strict=True):
        assert old in text, f"{mutation.name}: {mutation.fragment} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)
    project(folder).forget_library()


def judge_package(folder: Path) -> Report:
    """Returns the report of gen diff --against HEAD on the package of a workplace."""
    _, reports, errors = against(project(folder), "HEAD", lambda _: None)
    assert not errors, errors
    return reports[0]


def find_problems(mutation: Mutation, report: Report) -> list[str]:
    """Returns the verdicts of a report that are wrong."""
    right = {entry: ["same"] for entry in ENTRY.values()}
    for words in filter(None, mutation.expected.split(", ")):
        letters, _, verdicts = words.partition(" ")
        right |= {HOST: ["host"]} if letters == "H" else {ENTRY[it]: verdicts.split("/") for it in letters}
    found = {finding.entry: finding for finding in report.findings}
    problems = []
    for entry in {**right, **found}:
        words = found[entry].verdict.split() if entry in found else []
        if set(words).isdisjoint(right.get(entry, ())):
            problems.append(f"{mutation.name}: {entry} is {found.get(entry, 'not named')}, not {right.get(entry)}")
    return problems
