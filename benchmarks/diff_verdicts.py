"""Every mutation of tests/programs/mutations.py, and what gen diff --against says of it.

python benchmarks/diff_verdicts.py [NAME...]: only those whose names have one of these words. Takes about an hour.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from programs.mutations import MUTATIONS, find_problems, judge_package, make_workplace, mutate

from generator.programs.verdicts import SAME


def main(*words: str) -> None:
    chosen = [it for it in MUTATIONS if not words or any(word in it.name for word in words)]
    failed, taken_for_same = 0, 0
    with tempfile.TemporaryDirectory() as name:
        places = {package: make_workplace(Path(name, package), package) for package in {it.package for it in chosen}}
        for mutation in chosen:
            start, place = time.perf_counter(), Path(name, "mutated")
            shutil.copytree(places[mutation.package], place)
            mutate(place, mutation)
            report = judge_package(place)
            problems = find_problems(mutation, report)
            said = [f"{it.entry}: {it.verdict}" for it in report.findings if it.verdict not in SAME]
            seconds = time.perf_counter() - start
            print(f"{'WRONG' if problems else 'right'} {mutation.name} ({mutation.package}, {seconds:.0f} s)", end=": ")
            print("; ".join([*(said or sorted({it.verdict for it in report.findings})), *problems]), flush=True)
            failed += bool(problems)
            taken_for_same += bool(mutation.expected) and not said
            shutil.rmtree(place)
    print(f"{len(chosen)} mutations, {failed} wrong, {taken_for_same} of other programs taken for the same")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
