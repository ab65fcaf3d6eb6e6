"""Measures how modular the fragments are, and writes what it finds to docs/modularity.md, README.md and docs/loom.svg.

python benchmarks/modularity.py              all but the next: seconds
python benchmarks/modularity.py --features   what a feature touches, by weaving packages without it: minutes
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from generator.code.hunks import hunks  # noqa: E402
from generator.commands.loc import (  # noqa: E402
    count_all,
    count_files,
    find_code_lines,
    load_packages,
)
from generator.commands.tables import Table, format_markdown  # noqa: E402
from generator.disk.project import Project  # noqa: E402
from generator.errors import LoomError  # noqa: E402
from generator.language.fragment import Fragment  # noqa: E402
from generator.recipe.library import Library  # noqa: E402
from generator.recipe.recipe import Recipe, select  # noqa: E402
from generator.weaver import weave  # noqa: E402

PAGE = ROOT / "docs/modularity.md"
MARK = "<!-- loc -->\n"
TOUCHES = "What a feature touches"
FEATURES = [
    *("model/rope", "model/grouped_queries", "model/experts", "model/load_balance", "model/sliding_window"),
    *("model/qk_norm", "model/attention_soft_cap", "model/attention_sinks", "model/yarn", "model/lora", "model/mtp"),
    "data/packing",
]
SHORTEST = 4  # lines that are a restatement
README, FIGURE = ROOT / "README.md", ROOT / "docs/loom.svg"
COLOURS = {"model/rope": "#2f6f9f", "data/batches": "#2e7d32"}  # of fragments in the figure; the others are black


def counted(project: Project) -> list[Table]:
    """The tables of gen loc without the longest two, and the lines that fragments restate."""
    longest = "What a fragment makes", "What an architecture adds"
    tables = [table for table in count_all(project, load_packages(project)) if table.title not in longest]
    sources = project.library().files
    return [*tables, restated({path: text for path, text in sources.items() if path.startswith("fragments/")})]


def restated(fragments: dict[str, str]) -> Table:
    """Finds runs of lines of code that stand in two fragments, whatever their layout, comments and imports."""
    codes = {path: _bare_lines(path, text) for path, text in sorted(fragments.items())}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, code in codes.items():
        for start in range(len(code) - SHORTEST + 1):
            places[tuple(text for _, text in code[start : start + SHORTEST])].append((path, start))
    pairs = {pair for at in places.values() for pair in combinations(at, 2) if pair[0][0] != pair[1][0]}
    again = {(path, start + k) for _, (path, start) in pairs for k in range(SHORTEST)}
    rows = []
    for (path, start), (other, begin) in pairs:
        if ((path, start - 1), (other, begin - 1)) not in pairs:  # the first of a run
            more = 0
            while ((path, start + more + 1), (other, begin + more + 1)) in pairs:
                more += 1
            rows.append((more + SHORTEST, f"{path}:{codes[path][start][0]}", f"{other}:{codes[other][begin][0]}"))
    rows.sort(key=lambda row: (-row[0], *row[1:]))
    note = f"{len(again)} lines of code stand in an earlier fragment too, in runs of four or more; no imports."
    return Table("Restated between fragments", ("lines", "first", "again"), rows, note)


def _bare_lines(path: str, text: str) -> list[tuple[int, str]]:
    """The number and the text of each line of code, without white space and the comment at its end."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    imports = {number for node in nodes for number in range(node.lineno, node.end_lineno + 1)}
    lines, found = text.splitlines(), []
    for number in find_code_lines(path, text):
        code, mark, _ = lines[number - 1].partition("#")
        line = lines[number - 1] if mark and ("'" in code or '"' in code) else code  # it may stand in a string
        found += [] if number in imports else [(number, "".join(line.split()))]
    return found


def touched(project: Project, features: list[str]) -> Table:
    """Weaves every package without a feature, with every other fragment as it is; or with it, where none selects it.

    A package that weaves so needs no line of another fragment changed: the 0 is found by trying.
    """
    library = project.library()
    recipes = [select(it.architecture, it.target, library, parts=it.parts) for it in project.packages()]
    rows = [touched_by(feature, recipes, library) for feature in features]
    heads = ("feature", "its code", "changed in others", "lines to select it", "packages", "woven without it")
    note = (
        "Every package that selects a feature is woven without it; where none does, each package with it added. "
        "What builds on a feature goes with it, and one fragment may stand in for it. "
        "Lines to select it: the most in an architecture file, one for each kind of layer where these choose. "
        "Generated lines are those that are there, or differ, because of it. -: nothing stands in for it."
    )
    return Table(TOUCHES, (*heads, "woven with it added", "generated lines"), rows, note)


def touched_by(feature: str, recipes: list[Recipe], library: Library) -> tuple:
    having = [recipe for recipe in recipes if feature in [fragment.name for fragment in recipe.fragments]]
    usual = Counter(fragment.name for recipe in recipes for fragment in recipe.fragments)
    compared = generated = 0
    for recipe in having or recipes:
        own = _woven(recipe, library)
        if having:
            other = _without(recipe, feature, library, usual)
        else:
            other = _attempt(recipe, library, [], feature)
        if isinstance(other, dict):
            generated += _missing(own, other) if having else _missing(other, own)
            compared += 1
    path = f"fragments/{feature}.py"
    code, selecting = count_files({path: library.files[path]}).code, max(_selecting(feature, recipes)) if having else 1
    woven = (compared, 0) if having else (0, compared)
    return feature, code, 0 if compared else None, selecting, len(having), *woven, generated


def _without(recipe: Recipe, feature: str, library: Library, usual: Counter[str]) -> dict[str, str] | None:
    """Weaves a package without a feature; None where that needs a line of another fragment changed.

    What builds on the feature goes with it, and at most one fragment stands in for it, the most usual one first.
    """
    waiting = [([feature], "")]
    for gone, instead in waiting:
        woven = _attempt(recipe, library, gone, instead)
        if isinstance(woven, dict):
            return woven
        if woven.dependent and woven.dependent not in gone:
            waiting.append(([*gone, woven.dependent], instead))
        elif not instead:
            others = [name for name in woven.candidates if name not in gone]
            waiting += [(gone, name) for name in sorted(others, key=lambda name: -usual[name])]
    return None


def _attempt(recipe: Recipe, library: Library, gone: list[str], added: str = "") -> dict[str, str] | LoomError:
    """Weaves a package from TOML files that do not name some fragments, and with one more."""
    new = [library.fragment(name) for name in filter(None, [added])]
    names = {word for fragment in new for word in (fragment.name, fragment.short)}
    gone = [*gone, *(fragment.name for fragment in recipe.fragments if names.intersection(fragment.excludes))]
    stay = [*new, *(fragment for fragment in recipe.fragments if fragment.name not in gone)]
    out = [library.fragment(name) for name in gone]
    fields = _fields(out) - _fields(stay)
    read = {name for fragment in out for splice in fragment.splices for name in splice.reads}
    edited = {path: tomllib.loads(text) for path, text in library.files.items() if path.endswith(".toml")}
    for tables in edited.values():
        _remove(tables, gone, fields, read)
    if added:
        own = edited[recipe.lineage[-1].path]
        own["fragments"] = [*own.get("fragments", []), added]
        sizes = {member.name: 1 for member in new[0].fields if member.is_required}  # which makes no difference
        own["presets"] = {name: own.get("presets", {}).get(name, {}) | sizes for name in recipe.presets}
    own = recipe.package_file.data.parts
    parts = tuple(name for name in recipe.parts if set(gone).isdisjoint(own[name].fragments))
    try:
        return _woven(
            replace(recipe, parts=parts),
            library.with_texts({path: tomli_w.dumps(tables) for path, tables in edited.items()}),
        )
    except LoomError as error:
        return error


def _fields(fragments: list[Fragment]) -> set[str]:
    return {member.name for fragment in fragments for member in fragment.fields if member.is_field}


def _remove(tables: Any, fragments: list[str], fields: set[str], read: set[str], inside: str = "") -> None:
    """Takes fragments out of every list of a file, and out of sizes and kinds of layer what they alone read."""
    for key, value in list(tables.items() if isinstance(tables, dict) else enumerate(tables)):
        if isinstance(value, list):
            tables[key] = [each for each in value if each not in fragments]
        if key in {"init": read, "call": read, "preset": fields}.get(inside, ()):
            del tables[key]
        elif isinstance(value, (dict, list)):
            _remove(tables[key], fragments, fields, read, "preset" if inside in ("presets", "preset") else str(key))


def _woven(recipe: Recipe, library: Library) -> dict[str, str]:
    """Weaves a package without its tests: these name features."""
    tests = [name for name in library.fragments() if name.startswith("tests/")]
    return weave(recipe.architecture, recipe.target, library, tests, recipe.parts).files


def _missing(files: dict[str, str], others: dict[str, str]) -> int:
    """Counts the lines of a package that another does not have."""
    pairs = [(text.splitlines(), others.get(path, "").splitlines()) for path, text in files.items()]
    return sum(len(hunk.before) for mine, theirs in pairs for hunk in hunks(mine, theirs))


def _selecting(feature: str, recipes: list[Recipe]) -> Iterator[int]:
    """Counts how often each architecture file names a feature among those that it selects."""
    for file in {file.path: file for recipe in recipes for file in recipe.lineage}.values():
        tables = [file.data, *file.data.kinds.values(), *file.data.targets.values()]
        yield sum(table.fragments.count(feature) for table in tables)


def shown(project: Project) -> dict[Path, str]:
    """Returns README.md and its figure, with the lines and counts of llama2 for TPUs as it is woven now."""
    package = weave("llama2", "tpu", project.library(), parts=())
    modules = [text for path, text in package.files.items() if path.endswith(".py") and "/" not in path]
    size = f"{sum(text.count(chr(10)) for text in modules):,} lines in {len(modules)} files"
    text = package.files["model.py"]
    start = text[: text.index("    def __call__", text.index("class Attention"))].count("\n")
    end = text[: text.index("\n\n", text.index("attend(q, k, v"))].count("\n") + 1
    lines, origins = text.splitlines()[start:end], package.origins["model.py"][start:end]
    rows, drawn = [], []
    for i, (line, origin) in enumerate(zip(lines, origins, strict=True)):
        names = [it.path.removeprefix("fragments/").removesuffix(".py") for _, it in origin]
        rows.append(f"{line:<86}{', '.join(dict.fromkeys(names))}")
        bounds = pairwise([*(at for at, _ in origin), len(line)])
        parts = (
            f'<tspan fill="{COLOURS.get(name, "#222222")}">{escape(line[at:to])}</tspan>'
            for name, (at, to) in zip(names, bounds, strict=True)
        )
        drawn.append(f'<text x="376" y="{78 + 26 * i}" xml:space="preserve">{"".join(parts)}</text>')
    before, _, rest = README.read_text().partition("<!-- woven -->\n")
    readme = f"{before}<!-- woven -->\n```python\n{chr(10).join(rows)}\n```{rest.split('```', 2)[2]}"
    head, _, tail = FIGURE.read_text().partition("<!-- woven -->\n")
    figure = f"{head}<!-- woven -->\n{chr(10).join(drawn)}\n</g>{tail.partition('</g>')[2]}"
    return {README: re.sub(r"[0-9,]+ lines in [0-9]+ files", size, readme), FIGURE: figure}


def main() -> None:
    project, page = Project.find(ROOT), PAGE.read_text()
    before, rest = page.split(MARK)
    tables, _, features = rest.partition(f"**{TOUCHES}**")
    if "--features" in sys.argv[1:]:
        features = format_markdown(touched(project, FEATURES)).removeprefix(f"**{TOUCHES}**") + "\n"
    else:
        tables = "".join(f"{format_markdown(table)}\n\n" for table in counted(project))
    PAGE.write_text(f"{before}{MARK}{tables}**{TOUCHES}**{features}")
    for path, text in shown(project).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
