"""Random edits of random lines of the committed packages: they go home, or are refused with a reason.

`RANDOM_EDITS=500 python -m pytest -s tests/edits/test_random_edits.py` takes all packages and prints the shares.
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
from random_edits import RandomEdit, line_edit, statement_edit

from generator.disk.project import Project
from generator.package.package import Package
from generator.pull.edited import Edited, Hunk, find_edits
from generator.pull.pull import Pulled, pull
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


def pulled(package: Package, edited: Edited) -> Pulled:
    return pull(package, edited, library(), lambda changed: weave(package.architecture, package.target, changed))


def with_hunks(package: Package, hunks: list[Hunk]) -> dict[str, str]:
    """The files of a package with some hunks, made here from nothing but lines."""
    files = {path: text.split("\n") for path, text in package.files.items()}
    for hunk in sorted(hunks, key=lambda hunk: (hunk.start, hunk.stop), reverse=True):
        files[hunk.path][hunk.start : hunk.stop] = hunk.lines
    return {path: "\n".join(lines) for path, lines in files.items()}


def out_of_place(package: Package, hunks: list[Hunk], texts: dict[str, str]) -> list[str]:
    """Lines of fragments that were changed, and are neither origins of edited lines nor beside one.

    Imports may be anywhere in their block, and a splice's signature goes with its body.
    """
    near: set[tuple[str, int]] = set()
    for hunk in hunks:
        for row in range(max(hunk.start - 1, 0), min(hunk.stop + 1, len(package.origins[hunk.path]))):
            near |= {(origin.path, origin.line) for _, origin in package.origins[hunk.path][row]}
    found = []
    for path, text in texts.items():
        before, after = library().files[path].split("\n"), text.split("\n")
        body = ast.parse(library().files[path]).body
        free = {
            row
            for node in body
            for row in range(node.lineno, (node.end_lineno or 0) + 2)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        for node in body:
            inside = {(path, row) for row in range(node.lineno, (node.end_lineno or 0) + 1)}
            if isinstance(node, ast.FunctionDef) and node.decorator_list and inside & near:
                free.add(node.lineno)
        for kind, low, high, _, _ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            rows = range(low + 1, high + 1) if low < high else (low, low + 1)
            beside = any((path, row + step) in near for row in rows for step in (-1, 0, 1))
            if kind != "equal" and not beside and not free.issuperset(rows):
                found.append(f"{path}:{low + 1}")
    return found


def check(package: Package, edit: RandomEdit) -> bool:
    """The laws for one edit.

    Returns:
        Whether it went home.
    """
    disk: dict[str, bytes | str] = {path: text.encode() for path, text in package.files.items()}
    disk[edit.path] = edit.text.encode()
    edited = find_edits(package.files, disk)
    result = pulled(package, edited)
    built = weave(package.architecture, package.target, library().with_texts(result.texts)).files
    assert built == with_hunks(package, result.home)  # what went home, and nothing else
    if not result.refusals:
        assert built[edit.path] == edit.text
    assert all(refusal.reason and refusal.remedy and refusal.line for refusal in result.refusals)
    assert out_of_place(package, edited.hunks, result.texts) == []
    assert bool(result.texts) == bool(result.home)
    return not result.refusals


@pytest.mark.parametrize(("kind", "draw"), [("line", line_edit), ("statement", statement_edit)])
def test_pull_then_build_gives_the_edit_back(kind, draw, capsys):
    counts: Counter[tuple[str, bool]] = Counter()

    @common
    @given(st.sampled_from(packages()), st.integers(0, 2**32))
    def run(name, seed):
        edit = draw(woven(name), random.Random(seed))
        counts[edit.kind, check(woven(name), edit)] += 1

    run()
    home, total = sum(count for (_, is_home), count in counts.items() if is_home), counts.total()
    with capsys.disabled():
        if EXAMPLES > 100:
            print(f"\n{kind}: {home} of {total} went home ({home / total:.1%}), {total - home} refused: {dict(counts)}")
    if EXAMPLES > 100:
        assert home / total >= BARS[kind]


@settings(common, max_examples=max(EXAMPLES // 10, 2))
@given(st.sampled_from(packages()), st.integers(0, 2**32))
def test_several_edits_at_once(name, seed):
    """Each line goes home or stays, whatever becomes of the others; one cannot go home at all."""
    package, draw = woven(name), random.Random(seed)
    disk: dict[str, bytes | str] = {path: text.encode() for path, text in package.files.items()}
    for edit in [line_edit(package, draw) for _ in range(4)]:
        disk[edit.path] = edit.text.encode()
    disk["README.md"] = b"mine\n"
    edited = find_edits(package.files, disk)
    result = pulled(package, edited)
    built = weave(package.architecture, package.target, library().with_texts(result.texts)).files
    assert built == with_hunks(package, result.home)
    assert "README.md" in {refusal.path for refusal in result.refusals}
    assert out_of_place(package, [hunk for hunk in edited.hunks if hunk.path != "README.md"], result.texts) == []


@pytest.mark.parametrize("name", packages())
def test_no_edit_no_change(name):
    package = woven(name)
    edited = find_edits(package.files, {path: text.encode() for path, text in package.files.items()})
    result = pulled(package, edited)
    assert (edited.hunks, result.texts, result.home, result.refusals) == ([], {}, [], [])


def test_line_that_is_woven_in_several_places():
    """One place alone is refused, as are two that differ; all places go home as one."""
    package = woven("exaone4_tpu")
    text = package.files["model.py"]
    old = "self.attention_norm = Norm(config.width, config.norm_epsilon)"
    assert text.count(old) == 2
    one, both = text.replace(old, f"{old}  # mine", 1), text.replace(old, f"{old}  # mine")
    other = both.replace("# mine", "# yours", 1)
    for after, home, reasons in ((one, 0, 1), (both, 2, 0), (other, 0, 2)):
        disk: dict[str, bytes | str] = {path: text.encode() for path, text in package.files.items()}
        disk["model.py"] = after.encode()
        result = pulled(package, find_edits(package.files, disk))
        assert (len(result.home), len(result.refusals)) == (home, reasons)
        assert all("is woven in 2 places" in refusal.reason for refusal in result.refusals)
