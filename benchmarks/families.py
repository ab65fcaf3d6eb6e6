"""Writes the table of families by kind to docs/families.md, from what each architecture selects: seconds.

python benchmarks/families.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from generator.commands.tables import Table, format_markdown  # noqa: E402
from generator.disk.project import Project  # noqa: E402
from generator.errors import LoomError  # noqa: E402
from generator.recipe.library import Library  # noqa: E402
from generator.recipe.recipe import Recipe, select  # noqa: E402

PAGE = ROOT / "docs/families.md"
MARK = "<!-- families -->\n"
KINDS = ["dense", "experts", "latent", "hybrid", "recurrent", "encoder"]


def kinds_of(recipe: Recipe) -> list[str]:
    """Returns the kinds of a model, of KINDS: that of its mixers, then that of its feed-forward."""
    names = {fragment.name for fragment in recipe.fragments}
    has_mixer = any(splice.point == "Block.mixer" for fragment in recipe.fragments for splice in fragment.splices)
    is_encoder = recipe.architecture_file.data.reference.endswith("ForMaskedLM")
    found = {
        "latent": "model/latent_attention" in names,
        "hybrid": has_mixer and "model/attention" in names,
        "recurrent": has_mixer and "model/attention" not in names,
        "encoder": is_encoder,
        "experts": "model/experts" in names,
    }
    return [kind for kind, holds in found.items() if holds] or ["dense"]


def row(name: str, library: Library, targets: list[str]) -> tuple:
    """Returns the row of an architecture; a target that its fragments exclude has no trainer."""
    recipes = {}
    for target in targets:
        try:
            recipes[target] = select(name, target, library)
        except LoomError as error:
            if "excludes" not in str(error):
                raise
    recipe = recipes["cpu"]
    title = f"{recipe.architecture_file.data.title} (`{name}`)"
    lines = sum(1 for line in library.files[f"templates/architectures/{name}.toml"].splitlines() if line.strip())
    model = sum(fragment.name.startswith("model/") for fragment in recipe.fragments)
    trained = "all" if len(recipes) == len(targets) else ", ".join(recipes)
    served = "all" if "serve" in recipe.parts else "no"
    return title, ", ".join(kinds_of(recipe)), lines, model, trained, served


def families(project: Project) -> Table:
    """Returns the table of all built-in architectures, by kind."""
    library = project.library()
    targets = ["cpu", *(name for name in library.targets() if name != "cpu")]
    rows = [row(name, library, targets) for name in library.architectures()]
    rows.sort(key=lambda it: ([KINDS.index(kind) for kind in it[1].split(", ")], it[0]))
    note = (
        "Lines of toml: of its own file, without blank ones. Model fragments: all that its package for CPUs selects. "
        "Trained, served: the targets whose packages have a trainer and a server; all: "
        f"{', '.join(targets)}. Hybrid: attention beside recurrent or convolutional layers."
    )
    heads = ("family", "kind", "lines of toml", "model fragments", "trained", "served")
    return Table("Families by kind", heads, rows, note)


def page(project: Project, text: str) -> str:
    """Returns the page with the table of today."""
    before, _ = text.split(MARK)
    return f"{before}{MARK}{format_markdown(families(project))}\n"


if __name__ == "__main__":
    PAGE.write_text(page(Project.find(ROOT), PAGE.read_text()))
