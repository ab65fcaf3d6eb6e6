"""Random edits of random lines of packages: they go home, or are refused with a reason.

`RANDOM_EDITS=500 python -m pytest -s tests/edits/test_random_edits.py` edits all packages and prints the shares.
"""

from __future__ import annotations

import ast
import os
import random
from collections import Counter
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_edits import line_edit, statement_edit
from selected import mostly_slow

from generator.disk.project import Project
from generator.package.package import Package
from generator.pull.edits import Hunk, PackageEdits, find_edits
from generator.pull.pull import PullResult, pull
from generator.recipe.library import Library
from generator.weaver import weave

EXAMPLES = int(os.environ.get("RANDOM_EDITS", "3"))
BARS = {"line": 0.9, "statement": 0.75}
SOME = ("llama2_cpu", "exaone4_tpu")
common = settings(deadline=None, derandomize=True, max_examples=EXAMPLES)


@cache
def project() -> Project:
    return Project.find(Path(__file__).resolve().parents[2])


def library() -> Library:
    return project().library()


@cache
def woven(name: str) -> Package:
    combination = next(c for c in project().packages() if c.name == name)
    return weave(combination.architecture, combination.target, library())


def packages() -> list[str]:
    return [c.name for c in project().packages()] if EXAMPLES > 100 else list(SOME)


def pulled(package: Package, texts: dict[str, str]) -> tuple[PackageEdits, PullResult]:
    """Pulls edited texts of some files, and checks that weaving then makes the accepted edits and nothing else."""
    edited = find_edits(package.files, {path: text.encode() for path, text in {**package.files, **texts}.items()})
    result = pull(package, edited, library(), lambda other: weave(package.architecture, package.target, other))
    built = weave(package.architecture, package.target, library().with_texts(result.texts)).files
    accepted = {path: [hunk for hunk in result.accepted if hunk.path == path] for path in package.files}
    assert built == {path: apply_hunks(text, accepted[path]) for path, text in package.files.items()}
    assert find_far_changes(package, [h for h in edited.hunks if h.path in package.origins], result.texts) == []
    assert bool(result.texts) == bool(result.accepted)
    assert all(refusal.reason and refusal.remedy and refusal.line for refusal in result.refusals)
    assert result.refusals or all(built[path] == text for path, text in texts.items())
    return edited, result


def apply_hunks(text: str, hunks: list[Hunk]) -> str:
    """Applies hunks to a text, independently of the generator."""
    lines = text.split("\n")
    for hunk in sorted(hunks, key=lambda hunk: (hunk.start, hunk.stop), reverse=True):
        lines[hunk.start : hunk.stop] = hunk.lines
    return "\n".join(lines)


def find_far_changes(package: Package, hunks: list[Hunk], texts: dict[str, str]) -> list[str]:
    """Finds changed lines of fragments that are neither origins of edited lines nor next to one.

    Imports may be anywhere in their block, and the signature of a splice belongs to its body.
    """
    near: set[tuple[str, int]] = set()
    for hunk in hunks:
        for row in range(max(hunk.start - 1, 0), min(hunk.stop + 1, len(package.origins[hunk.path]))):
            near |= {(origin.path, origin.line) for _, origin in package.origins[hunk.path][row]}
    far = []
    for path, text in texts.items():
        before, after = library().files[path].split("\n"), text.split("\n")
        free = set[int]()
        for node in ast.parse(library().files[path]).body:
            lines = range(node.lineno, (node.end_lineno or 0) + 1)
            if isinstance(node, ast.Import | ast.ImportFrom):
                free |= {*lines, lines.stop}
            elif isinstance(node, ast.FunctionDef) and node.decorator_list and near & {(path, row) for row in lines}:
                free.add(node.lineno)
        for kind, low, high, _, _ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            rows = range(low + 1, high + 1) if low < high else (low, low + 1)
            is_near = any((path, row + step) in near for row in rows for step in (-1, 0, 1))
            if kind != "equal" and not is_near and not free.issuperset(rows):
                far.append(f"{path}:{low + 1}")
    return far


@pytest.mark.parametrize(
    ("kind", "draw"), mostly_slow([("line", line_edit), ("statement", statement_edit)], ("statement", statement_edit))
)
def test_pull_then_build_gives_the_edit_back(kind, draw, capsys):
    counts: Counter[tuple[str, bool]] = Counter()

    @common
    @given(st.sampled_from(packages()), st.integers(0, 2**32))
    def run(name, seed):
        edit = draw(woven(name), random.Random(seed))
        _, result = pulled(woven(name), {edit.path: edit.text})
        counts[edit.kind, not result.refusals] += 1

    run()
    home, total = sum(count for (_, is_home), count in counts.items() if is_home), counts.total()
    if EXAMPLES > 100:
        with capsys.disabled():
            print(f"\n{kind}: {home} of {total} went home ({home / total:.1%}): {dict(counts)}")
        assert home / total >= BARS[kind]


@settings(common, max_examples=max(EXAMPLES // 10, 2))
@given(st.sampled_from(packages()), st.integers(0, 2**32))
def test_four_edits_at_once(name, seed):
    """Each edit goes home or stays, independently of the others; that of a template cannot go home."""
    draw = random.Random(seed)
    edits = [line_edit(woven(name), draw) for _ in range(4)]
    _, result = pulled(woven(name), {edit.path: edit.text for edit in edits} | {"README.md": "mine\n"})
    assert "README.md" in {refusal.path for refusal in result.refusals}


@pytest.mark.parametrize("name", packages())
def test_no_edit_no_change(name):
    edited, result = pulled(woven(name), {})
    assert (edited.hunks, result.texts, result.accepted, result.refusals) == ([], {}, [], [])


@pytest.mark.slow
def test_line_that_is_woven_in_several_places():
    """An edit of one copy is refused, as are two that differ; the same edit of all copies goes home."""
    package = woven("exaone4_tpu")
    text = package.files["model.py"]
    old = "self.attention_norm = Norm(config.width, config.norm_epsilon)"
    assert text.count(old) == 2
    one, both = text.replace(old, f"{old}  # mine", 1), text.replace(old, f"{old}  # mine")
    other = both.replace("# mine", "# yours", 1)
    for after, home, reasons in ((one, 0, 1), (both, 2, 0), (other, 0, 2)):
        _, result = pulled(package, {"model.py": after})
        assert (len(result.accepted), len(result.refusals)) == (home, reasons)
        assert all("is woven in 2 places" in refusal.reason for refusal in result.refusals)
