"""`gen loc`: the counts as tables for people."""

from __future__ import annotations

from generator.commands.tables import Table

FEATURE = {  # a count of a feature -> its heading
    "fragment": "feature",
    "code": "its code",
    "others": "changed in others",
    "selecting": "lines to select it",
    "packages": "packages",
    "without": "woven without it",
    "added": "woven with it added",
    "generated": "generated lines",
}


def tables(report: dict) -> list[Table]:
    """The counts as tables for people."""
    code_note = "Code: without blank lines, comments and docstrings. gen.lock and gen.map are not counted."
    heads = ("", "files", "lines", "code")

    def row(name: str, counts: dict) -> tuple:
        return name, counts["files"], counts["physical"], counts["code"]

    source = [row(kind, counts) for kind, counts in report["source"].items()]
    made = [row(package["name"], package) for package in report["packages"]]
    made += [row("total", report["generated"]), row("total, equal files once", report["generated_distinct"])]
    ratio = report["ratio"]
    ratios = [
        ("all packages", ratio["physical"], ratio["code"]),
        ("equal files once", ratio["distinct_physical"], ratio["distinct_code"]),
    ]
    fragments = [(r["fragment"], r["code"], r["makes"], r["packages"]) for r in report["fragments"]]
    architectures = [
        (r["architecture"], r["physical"], r["code"], r["code"] - r["presets"], ", ".join(r["new_fragments"]) or "none")
        for r in report["architectures"]
    ]
    restated = report["restated"]
    result = [
        Table("Source", heads, [*source, row("(the generator itself)", report["generator"])], code_note),
        Table(
            "Generated",
            heads,
            made,
            "Files are equal if they differ in their first line alone, which names the package.",
        ),
        Table("Generated lines for each source line", ("", "lines", "code"), ratios),
        Table(
            "What an architecture adds",
            ("architecture", "lines", "code", "without presets", "new fragments"),
            architectures,
            "Its own file, and the fragments that it or its rules select, and no architecture above it, no target and "
            "not every package.",
        ),
        Table(
            "What a fragment makes",
            ("fragment", "code", "makes", "packages"),
            fragments,
            "Lines of code in all packages; a line is made by the fragment that its first character came from.",
        ),
        Table(
            "Restated between fragments",
            ("lines", "first", "again"),
            [(c["lines"], c["first"], c["second"]) for c in restated["clones"]],
            f"{restated['lines']} lines of code stand in an earlier fragment too, in runs of four or more; no imports.",
        ),
    ]
    if report["features"]:
        rows = [tuple(row[key] for key in FEATURE) for row in report["features"]]
        note = (
            "Every package that selects a feature is woven without it; where none does, each package with it added. "
            "What builds on a feature goes with it, and one fragment may stand in for it. "
            "Lines to select it: the most in an architecture file, one for each kind of layer where these choose. "
            "Generated lines are those that are there, or differ, because of it. -: nothing stands in for it."
        )
        result.append(Table("What a feature touches", tuple(FEATURE.values()), rows, note))
    return result
