"""From a checkpoint to a package with its weights, and the commands that come next: `gen start`."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from generator.checkpoint.exact import find_exact
from generator.checkpoint.example_rows import FILES, write_example_rows
from generator.checkpoint.files import read_config
from generator.commands.build import build_one
from generator.commands.console import PATH, Status, complain, exit_codes, note
from generator.commands.new import find_config, find_families, new
from generator.commands.parity import NEEDED, REFERENCE, ParityError, find_memory, find_weights, show_parity
from generator.disk.files import display_path
from generator.disk.lock import Combination
from generator.disk.project import SETTINGS, Project
from generator.disk.write import whole_or_absent
from generator.errors import LoomError
from generator.recipe.library import is_package_name
from generator.recipe.recipe import select
from generator.running.program import run_program

PARTS = ("chat_data", "evaluate", "huggingface", "serve")  # of what is printed at the end
SERVER = ("jinja2", "msgspec", "prometheus_client", "starlette", "uvicorn")
BYTES = 258  # tokens of the tokenizer of bytes


@click.command("start", **exit_codes("1 a comparison with transformers failed"))
@click.argument("checkpoint", metavar="HF_DIR|config.json", type=PATH)
@click.option("--target", metavar="T", help="Hardware; by default gpu where there is a driver of NVIDIA, else cpu.")
@click.option("--with", "parts", metavar="PART", multiple=True, help="Add a part, as gen build does.")
@click.option("--name", metavar="NAME", help="Of the architecture and the run; by default after the folder.")
@click.option("--ignore", metavar="SETTING", multiple=True, help="A setting to accept though no fragment covers it.")
@click.option("--no-parity", is_flag=True, help="Do not compare with transformers.")
def command(
    checkpoint: Path,
    target: str | None,
    parts: tuple[str, ...],
    name: str | None,
    ignore: tuple[str, ...],
    no_parity: bool,
) -> None:
    """Make a package for a checkpoint, import its weights, and print how to fine-tune, evaluate and serve it.

    Each step is a command, which is shown: gen new, unless an architecture fits as it is (with --name, only one of that
    name does); gen build, with the parts that fine-tuning, evaluating and serving need, as far as the model can have
    them; the package's import, into runs/; gen parity. With a config.json alone nothing is imported, and training
    begins from random weights.

    Nothing that is there already is changed: a second run goes on where the first one ended.
    """
    project = Project.find()
    path = find_config(project, checkpoint)
    if path.name != "config.json":
        raise LoomError("is not called config.json", display_path(path), "Rename it: transformers needs that name.")
    has_driver = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi")
    start = Start(project, path, target or ("gpu" if has_driver else "cpu"), name or "")
    start.choose_architecture(ignore)
    start.build(parts)
    start.import_weights()
    holds = no_parity or start.compare()
    start.print_next()
    if not holds:
        raise click.exceptions.Exit(1)


@dataclass
class Start:
    """A checkpoint on its way to a package and a run.

    Attributes:
        config: the path of its config.json.
        given_name: that of --name, or "".
        sizes: fields of Config for which config.json has values.
        preset: one that has these sizes, or "".
        parts: those of the package.
    """

    project: Project
    config: Path
    target: str
    given_name: str
    architecture: str = ""
    sizes: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.folder, self.where = self.config.parent, display_path(self.config)
        self.hf = read_config(self.config, self.where)
        self.weights = find_weights(self.folder, display_path(self.folder))
        place = Path(os.path.abspath(self.folder))
        if place.parent.name == "snapshots":  # of the cache of Hugging Face: models--OWNER--NAME/snapshots/COMMIT
            place = Path(place.parents[1].name.rpartition("--")[2])
        name = re.sub("[^a-z0-9]+", "_", place.name.lower()).strip("_")
        self.name = self.given_name or (name if is_package_name(name) else f"model_{name}")
        self.run = self.project.root / "runs" / self.name
        python, here = Path(shutil.which("python") or ""), Path(sys.executable)
        self.python = "python" if python.parent == here.parent and python.samefile(here) else sys.executable

    @property
    def package(self) -> str:
        return f"{self.architecture}_{self.target}"

    def choose_architecture(self, ignored: tuple[str, ...]) -> None:
        """Chooses an architecture that reads the checkpoint as it is, or writes one."""
        library, settings = self.project.library(), self.project.root / SETTINGS
        families = find_families(library, self.hf, self.where)
        names = [name for name in families if name == self.name or not self.given_name]
        with Status(f"reading {self.where} ..."):
            is_found = any(self._fits(name) for name in sorted(names, key=lambda name: name != self.name))
        if not is_found:
            words = ["--from-hf", self.where, f"--target={self.target}", f"--name={self.name}"]
            _show(["gen", "new", *words, *(f"--ignore={setting}" for setting in ignored)])
            path = self.project.root / f"templates/architectures/{self.name}.toml"
            with whole_or_absent(path), Status("choosing family and structure ..."):
                family, *_ = new(self.project, self.config, self.target, self.name, ignored)
            click.echo(f"{display_path(path)}: as {family}")
            if not self._fits(self.name):
                raise LoomError(f"does not fit {self.where}", display_path(path), "Report it, with this config.json.")
        else:
            click.echo(f"{self.where}: the architecture {self.architecture} fits it as it is")
        if not os.path.lexists(settings):
            settings.write_text('generated = "generated"  # gen finds the project from any folder below\n')

    def _fits(self, name: str) -> bool:
        """Takes an architecture if it reads config.json as it is; returns whether it does."""
        listed = {combination.name for combination in self.project.listing.packages or ()}
        if name != self.name and f"{name}_{self.target}" in listed and self._find_missing(name):
            return False  # a listed package keeps the parts that it is listed with
        found = find_exact(self.project.library(), name, self.target, self.hf, self.where)
        if not found or not (self.weights or found[1]):
            return False
        self.architecture, (self.sizes, self.preset) = name, found
        return True

    def _find_missing(self, architecture: str) -> list[str]:
        """Returns the parts that are needed here and that a package could have, and has not."""
        library, before = self.project.library(), self.project.find_parts(f"{architecture}_{self.target}")
        possible = select(architecture, self.target, library).parts
        has = select(architecture, self.target, library, parts=before).parts
        return [part for part in PARTS if part in possible and part not in has]

    def build(self, asked: Collection[str]) -> None:
        """Builds the package with the parts that it has, those that are needed here, and those that are asked for."""
        library, before = self.project.library(), self.project.find_parts(self.package)
        is_owned = Combination(self.architecture, self.target, before) in self.project.listing.owned
        added = set() if is_owned else {*self._find_missing(self.architecture), *asked} - {*before}
        combination = Combination(self.architecture, self.target, tuple(sorted({*before, *added})))
        recipe = select(self.architecture, self.target, library, parts=combination.parts)
        self.parts = recipe.parts
        _show([*combination.command.split(), *(f"--with={part}" for part in combination.parts if added)])
        with whole_or_absent(self.project.generated / self.package), Status(f"weaving {self.package} ..."):
            build_one(self.project, combination)
        for part in (part for part in PARTS if part not in self.parts):
            try:
                select(self.architecture, self.target, library, parts=[part])
            except LoomError as error:
                note([f"{self.package}: {error.message}"])
        serves = "serve" in self.parts
        needed = [*(name for name in NEEDED if name not in REFERENCE), *(SERVER if serves else ())]
        if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
            extras = ",".join([*recipe.target_file.data.extras, *(["serve"] if serves else [])])
            folder = os.path.relpath(self.project.generated / self.package)
            install = shlex.quote(f"./{folder}[{extras}]" if extras else f"./{folder}")
            remedy = f"pip install {install}\n  and run gen start again: it goes on from here."
            raise LoomError(f"needs {', '.join(missing)}, which this Python does not have", self.package, remedy)

    def import_weights(self) -> None:
        """Imports the weights as step 0 of a run, unless the run is there."""
        folder, run = display_path(self.folder), display_path(self.run)
        if not self.weights:
            click.echo(f"{folder}: has no weights to import, so training begins from random ones")
        elif os.path.lexists(self.run):
            kept = self.run / "tokenizer/config.json"
            is_other = kept.is_file() and kept.read_bytes() != self.config.read_bytes()
            if is_other or not any(path.name.isdecimal() for path in self.run.glob("*")):
                raise LoomError(f"is there already, and is no run of {folder}", run, "Give another --name, or move it.")
            click.echo(f"{run}: is there already, and stays as it is; remove it to import again")
        else:
            words = ["-m", f"{self.package}.checkpoint", "import", self._path(self.folder), self._path(self.run)]
            _show(["cd", os.path.relpath(self.project.generated)], [self.python, *words])
            with whole_or_absent(self.run.with_name(f"{self.run.name}.half")), Status("importing ..."):
                click.echo(run_program(words, self.project.generated), nl=False)

    def compare(self) -> bool:
        """Compares the package with transformers, where that is possible; returns whether no comparison failed."""
        _show(["gen", "parity", self.architecture, display_path(self.folder)])
        try:
            return show_parity(self.project, self.architecture, self.folder, "cpu", most_memory=find_memory())
        except ParityError as error:
            complain(error)
            return False
        except LoomError as error:
            note([f"not compared with transformers: {error}"])
            return True

    def print_next(self) -> None:
        """Prints the commands that fine-tune, evaluate and serve, after writing rows to try them with."""
        for path in write_example_rows(self.project.root, self.folder):
            click.echo(f"{display_path(path)}: rows to try the commands with; put yours in their place")
        train, held_out = (self._path(self.project.root / name) for name in FILES)
        run, length = ["--checkpoint-dir", self._path(self.run)], str(min(1024, self.sizes.get("context_length", 1024)))
        begin = ["--learning-rate", "1e-5"] if self.weights else ["--preset", self.preset]
        sizes = ["--sequence-length", length, "--batch-size", "8", *begin, "--steps", "100"]
        programs = [["train", *run, "--data", train, *self._find_tokenizer(), *sizes]]
        programs += [["evaluate", *run, "--data", held_out]] if "evaluate" in self.parts else []
        programs += [["serve", *run, "--port", "8000"]] if "serve" in self.parts else []
        lines = [[self.python, "-m", f"{self.package}.{name}", *words] for name, *words in programs]
        lines.insert(0, ["cd", os.path.relpath(self.project.generated)])
        click.echo("\n".join(["\nWhat comes next:\n", *(f"  {shlex.join(line)}" for line in lines)]))
        click.echo("\ngen start --with PART adds a part, such as structured or monitor: see gen list parts.")

    def _find_tokenizer(self) -> list[str]:
        """Returns the flag for the tokenizer; none if the import has copied it."""
        path = self.folder / "tokenizer.json"
        if path.is_file():
            return [] if self.weights else ["--tokenizer", self._path(path)]
        if not self.weights and self.sizes.get("vocab_size", 0) >= BYTES:
            return ["--tokenizer", "bytes"]
        remedy = "save_pretrained of the tokenizer in transformers writes one"
        note([f"{display_path(path)} is missing, and training needs it: {remedy}"])
        return ["--tokenizer", self._path(path)]

    def _path(self, path: Path) -> str:
        """Returns a path from the folder of the packages."""
        return os.path.relpath(path, self.project.generated)


def _show(*commands: list[str]) -> None:
    """Prints a line that does what follows, as one would type it."""
    click.echo(f"$ {' && '.join(map(shlex.join, commands))}")
