"""Writes an architecture file for a checkpoint, from its config.json.

What differs in structure between checkpoints of one family (tied or not, which layers are sparse) is chosen here, by
the [[structure]] rules and the `where` of layer kinds that the family's architecture files hold. Sizes become a preset.
"""

from __future__ import annotations
import __future__

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from generator.commands.project import Project
from generator.errors import LoomError, nearest
from generator.layers import Kind, Pattern, find_groups
from generator.library import Library
from generator.recipe import Recipe, select
from generator.weave import weave

# settings that do not change what a model computes, or only how transformers runs it
NEUTRAL = frozenset(
    "architectures attn_implementation bos_token_id chunk_size_feed_forward dtype eos_token_id id2label label2id "
    "model_type output_attentions output_hidden_states output_router_logits pad_token_id pretraining_tp problem_type "
    "return_dict sep_token_id task_specific_params tokenizer_class torch_dtype transformers_version use_cache "
    # of features that are off where no fragment reads them
    "intermediate_size max_window_layers original_max_position_embeddings scale_attn_weights "
    "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj "
    # of training in transformers; Loomax trains without dropout
    "attention_dropout attn_pdrop embd_pdrop resid_pdrop".split()
)


@dataclass
class Choice:
    """What an architecture file for a checkpoint says, beside its sizes."""

    base: str
    without: list[str] = field(default_factory=list)
    fragments: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    layers: str = ""

    def text(self, title: str) -> str:
        """The architecture file."""
        lines = [f'base = "{self.base}"', f"title = {json.dumps(title)}"]
        lines += [f"{key} = {json.dumps(names)}" for key, names in self._names() if names]
        if self.settings:
            lines += ["", "[settings]", *(f"{name} = {json.dumps(value)}" for name, value in self.settings.items())]
        return "\n".join(lines) + "\n" + self.layers

    def change(self, without: list[str], fragments: list[str], settings: dict[str, object]) -> None:
        """Follows a rule."""
        self.without += [name for name in without if name not in self.fragments]
        self.without = [name for name in self.without if name not in fragments]
        self.fragments = [name for name in self.fragments if name not in without] + fragments
        self.settings |= settings

    def _names(self) -> Iterator[tuple[str, list[str]]]:
        yield "without", self.without
        yield "fragments", self.fragments


def new(project: Project, config_path: Path, target: str, name: str) -> tuple[str, Path]:
    """Writes `templates/architectures/NAME.toml` for the checkpoint that a config.json describes.

    Args:
        target: what its package must weave for.
        name: of the architecture.

    Returns:
        The architecture that it is based on, and the file.

    Raises:
        LoomError: a config.json that cannot be read, or a setting that no fragment covers.
    """
    shown = project.show(config_path)
    hf, library = _read(config_path, shown), project.library()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise LoomError(f"{name!r} cannot name an architecture", None, "Use small letters, digits and _.")
    path = project.root / "templates/architectures" / f"{name}.toml"
    if name in library.architectures():
        raise LoomError(f"there is an architecture {name!r} already", str(path), "Give another --name.")
    families = _families(library, target, hf, shown)
    refusals = []
    for family in families:
        try:
            text = fit(library, family, target, hf, name, shown)
        except LoomError as error:
            refusals.append(error)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        project.forget_library()
        return family, path
    raise refusals[0]


def _read(path: Path, shown: str) -> dict[str, Any]:
    try:
        hf = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoomError(f"cannot be read: {error}", shown, "Give the config.json of a checkpoint.") from None
    if not isinstance(hf, dict) or "model_type" not in hf:
        raise LoomError("has no model_type", shown, "Give the config.json of a checkpoint.")
    return hf


def _families(library: Library, target: str, hf: dict[str, Any], shown: str) -> list[str]:
    """The architectures of this model_type, those without a base first."""
    recipes = {name: select(name, target, library) for name in library.architectures()}
    types = {name: recipe.said("model_type") for name, recipe in recipes.items()}
    found = [name for name, kind in types.items() if kind == hf["model_type"]]
    if not found:
        remedy = nearest(hf["model_type"], sorted({kind for kind in types.values() if kind}))
        raise LoomError(f"no architecture is of the model_type {hf['model_type']!r}", shown, remedy)
    return sorted(found, key=lambda name: len(recipes[name].lineage))


def fit(library: Library, family: str, target: str, hf: dict[str, Any], name: str, shown: str) -> str:
    """The text of an architecture file on top of a family's, whose package fits a config.json.

    Raises:
        LoomError: a setting that no rule of the family and no fragment covers.
    """
    choice = Choice(family)
    for _ in range(20):  # a rule may bring the need of another
        text = choice.text(name)
        trial = Library({**library.files, f"templates/architectures/{name}.toml": text})
        recipe = select(name, target, trial)
        package = Readers(weave(name, target, trial).files["huggingface.py"])
        full = package.complete(dict(hf))
        layers = _layers(recipe, full, shown)
        problems = [item for item in package.structure(full) if full.get(item[0]) != item[1]]
        if layers and not choice.layers:
            choice.layers = layers
        elif problems:
            _apply(recipe, choice, full, problems[0], shown)
        else:
            _check_covered(package, hf, full, shown)
            return text + _preset(name, package, full)
    raise LoomError("the rules of this family contradict each other", f"templates/architectures/{family}.toml", "Mend.")


class Readers:
    """The functions of a woven huggingface.py that need nothing but Python and its library."""

    def __init__(self, text: str):
        plain = [node for node in ast.parse(text).body if _is_plain(node)]
        reading = [node for node in plain if isinstance(node, ast.Assign) or getattr(node, "name", "") == "complete"]
        constants = (node.value for top in reading for node in ast.walk(top) if isinstance(node, ast.Constant))
        self.mentioned = {value for value in constants if isinstance(value, str)}  # settings that `complete` reads
        self._names: dict[str, Any] = {}
        module = ast.Module(plain, [])
        # annotations stay unevaluated: they name what is not imported here
        exec(compile(module, "huggingface.py", "exec", __future__.annotations.compiler_flag), self._names)

    def complete(self, hf: dict[str, Any]) -> dict[str, Any]:
        return self._names["complete"](hf)

    def sizes(self) -> list[tuple[str, str]]:
        return list(self._names["hf_sizes"]())

    def config(self, hf: dict[str, Any]) -> SimpleNamespace:
        """What the sizes of a completed config.json make of Config."""
        return SimpleNamespace(**{field: hf.get(setting) for setting, field in self.sizes()})

    def structure(self, hf: dict[str, Any]) -> list[tuple[str, Any, str]]:
        return list(self._names["hf_structure"](self.config(hf)))


def _is_plain(node: ast.stmt) -> bool:
    """A function, a value that is written out, or a module of Python's library."""
    if isinstance(node, ast.Import):
        return all(name.name in sys.stdlib_module_names for name in node.names)
    if isinstance(node, ast.Assign):
        try:
            ast.literal_eval(node.value)
        except ValueError:
            return False
        return True
    return isinstance(node, ast.FunctionDef) and not node.decorator_list


def _apply(recipe: Recipe, choice: Choice, hf: dict[str, Any], problem: tuple, shown: str) -> None:
    """Follows the family's rule for a setting that its package was not woven for."""
    setting, woven, remedy = problem
    for file in (*reversed(recipe.lineage), recipe.package_file):
        for rule in file.data.get("structure", ()):
            if rule["setting"] == setting and _says(hf.get(setting), rule["value"]):
                selected = {fragment.name for fragment in recipe.fragments}
                without = [name for name in rule.get("without", ()) if name in selected]
                fragments = [name for name in rule.get("fragments", ()) if name not in selected]
                settings = {name: it for name, it in rule.get("settings", {}).items() if recipe.settings[name] != it}
                if not (without or fragments or settings):
                    continue
                choice.change(without, fragments, settings)
                return
    found = json.dumps(hf.get(setting))
    message = f"{setting} is {found}, and {choice.base} is woven for {json.dumps(woven)}"
    raise LoomError(message, shown, f"No rule covers it. Select {remedy.rstrip(',')}.")


def _says(found: Any, value: Any) -> bool:
    """Whether a setting has the value of a rule; a table, what the rule's table has."""
    if isinstance(found, dict) and isinstance(value, dict):
        return value.items() <= found.items()
    return found == value


def _layers(recipe: Recipe, hf: dict[str, Any], shown: str) -> str:
    """The groups of layers that a config.json asks for, where they are not the architecture's own."""
    kinds = {name: kind.where for name, kind in _kinds(recipe.pattern).items() if kind.where}
    if not kinds:
        return ""
    count, asked = hf["num_hidden_layers"], []
    for layer in range(count):
        of = [name for name, where in kinds.items() if eval(where, {"hf": hf, "layer": layer})]
        if len(of) != 1:
            message = f"layer {layer} is of the kinds {of}, by their `where`"
            raise LoomError(message, shown, "A layer is of one kind: mend them in the architecture.")
        asked += of
    return "" if asked == _kinds_of(recipe.pattern, hf, recipe) else "\n" + _tables(recipe, find_groups(asked))


def _kinds(pattern: Pattern) -> dict[str, Kind]:
    """All kinds of layer of an architecture, those that are for checkpoints alone last."""
    return pattern.kinds | pattern.spare


def _kinds_of(pattern: Pattern, hf: dict[str, Any], recipe: Recipe) -> list[str]:
    """The kind of each layer by the architecture's own pattern, at a checkpoint's sizes."""
    config = Readers(weave(recipe.architecture, recipe.target, recipe.library).files["huggingface.py"]).config(hf)
    found: dict[int, str] = {}
    stacks = iter(pattern.numbers().values())
    for group in pattern.groups:
        try:
            numbers = [eval(next(stacks), {"config": config}) for _ in group.pattern]
        except (TypeError, AttributeError):
            return []
        if len(set(map(len, numbers))) > 1:
            return []  # a last period that is not whole
        for kind, layers in zip(group.pattern, numbers, strict=True):
            found |= dict.fromkeys(layers, kind)
    return [found[layer] for layer in sorted(found)]


def _tables(recipe: Recipe, groups: list[tuple[str, list[str], str]]) -> str:
    lines = []
    for name, pattern, count in groups:
        lines += ["[[layers]]", *([f'name = "{name}"'] if name else []), f"pattern = {json.dumps(pattern)}"]
        lines += [f'count = "{count}"', ""]
    used = {kind for _, pattern, _ in groups for kind in pattern}
    for name, kind in _kinds(recipe.pattern).items():
        if name in used:
            lines += [f"[kinds.{name}]", f"where = {json.dumps(kind.where)}"]
            lines += [f"{key} = {_inline(value)}" for key, value in (("init", kind.init), ("call", kind.call)) if value]
            lines += [f"fragments = {json.dumps(list(kind.fragments))}"] if kind.fragments else []
            lines.append("")
    return "\n".join(lines)


def _inline(table: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + " }"


def _check_covered(package: Readers, hf: dict[str, Any], full: dict[str, Any], shown: str) -> None:
    """Every setting that is on is one that a fragment reads or was chosen for."""
    known = {setting for setting, _ in package.sizes()} | {setting for setting, *_ in package.structure(full)}
    on = {key for key, value in hf.items() if value not in (None, False, 0, 0.0, [], {}, "") and key[0] != "_"}
    if set(hf.get("layer_types") or ()) == {"full_attention"}:
        on -= {"layer_types"}  # as without it
    for setting in sorted(on - known - package.mentioned - NEUTRAL):
        message = f"no fragment covers the setting {setting}, which is {json.dumps(hf[setting])}"
        raise LoomError(message, shown, "Write a fragment for it, or take a checkpoint without it.")


def _preset(name: str, package: Readers, hf: dict[str, Any]) -> str:
    lines = ["", f"[presets.{name}]"]
    lines += [
        f"{field} = {json.dumps(hf[setting])}" for setting, field in package.sizes() if hf.get(setting) is not None
    ]
    return "\n".join(lines) + "\n"
