"""Writes the facts of packages as JSON: a digest of each program, parameters, checkpoint names, layouts, interface.

`python -m generator.programs.tracer FOLDER NAME...`, a process of its own: the folder holds one version of each
package, so that two versions never meet. What goes wrong is a fact too: {"undecided": reason}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from generator.programs import entries
from generator.programs.canonical import Canonical, digest, places
from generator.programs.guard import guarded
from generator.programs.interface import interface
from generator.programs.noting import note_statements, unnoted


def main(folder: str, *names: str) -> None:
    ran = note_statements(folder)
    sys.path.insert(0, folder)
    for name in names:
        facts = guarded(lambda: trace(name, Path(folder, name)))  # noqa: B023
        facts["ran"] = sorted(place for place in ran if place[0].startswith(f"{name}/"))
        temporary = Path(folder, f"{name}.json.half")
        temporary.write_text(json.dumps(facts))
        temporary.rename(Path(folder, f"{name}.json"))
        jax.clear_caches()


def trace(name: str, place: Path) -> dict[str, Any]:
    """The facts of one package."""
    with unnoted():  # which runs commands until they say what they take
        facts: dict[str, Any] = {"interface": guarded(lambda: interface(name, place))}
    package = entries.load(name)
    canonical = Canonical()
    facts["variants"], facts["programs"], facts["parameters"] = {}, {}, {}
    for variant, config in entries.variants(package).items():
        facts["variants"][variant] = config.dtype
        facts["parameters"][variant] = guarded(lambda: parameters(package, config, variant == "tiny"))  # noqa: B023
        for entry, part, function, arguments in entries.programs(package, config, 256):
            facts["programs"].setdefault(entry, {}).setdefault(variant, {})[part] = guarded(
                lambda: program(canonical, function, arguments)  # noqa: B023
            )
    tiny = package.config.PRESETS["tiny"]
    facts["device"] = guarded(lambda: entries.device_numbers(package, tiny, 256))
    facts["layout"] = guarded(lambda: layout(package, tiny, canonical))
    facts["remat"] = guarded(lambda: {k: digest(canonical.key(v)) for k, v in package.parallel.REMAT.items()})
    return facts


def program(canonical: Canonical, function: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
    """The digest of a program, and what it takes beside parameters."""
    jaxpr, out = jax.make_jaxpr(function, return_shape=True)(*arguments.values())
    names = [f"{name}{path}" for name, value in arguments.items() for path in paths(value)]
    takes = zip(names, [str(v.aval) for v in jaxpr.jaxpr.invars], strict=True)
    found = canonical.program(jaxpr, names, paths(out))
    return {"digest": found, "takes": {name: x for name, x in takes if not name.startswith(("state", "model"))}}


def paths(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def parameters(package: SimpleNamespace, config: Any, contents: bool) -> dict[str, Any]:
    """Names, shapes and dtypes of the arrays of a checkpoint; tensors and settings of a Hugging Face checkpoint.

    Args:
        contents: whether to say which numbers of the parameters are where in the tensors.
    """
    hf, named = package.huggingface, package.parallel.named_arrays
    state = package.parallel.abstract(lambda: package.train.new_state(config), None)
    model = named(state.model)
    views, holders = hf.hf_holders(model, config)
    tensors = {name: [list(x.shape), holders[name]] for name, x in views.items()}
    if contents:
        arrays = {name: np.arange(x.size, dtype=np.int32).reshape(x.shape) for name, x in model.items()}
        for name, x in hf.hf_views(arrays, config).items():
            tensors[name].append(digest(np.ascontiguousarray(x).tobytes()))
    shapes = {name: [list(x.shape), str(x.dtype)] for name, x in named(state).items()}
    names = {f"model.{name}" for name in model}
    return {
        "model": {name: x for name, x in shapes.items() if name in names},
        "training": {name: x for name, x in shapes.items() if name not in names},
        "tensors": tensors if contents else digest(sorted(tensors.items())),  # of large presets there are many
        "settings": sorted(map(repr, [*hf.hf_sizes(), *hf.hf_structure(config), *hf.hf_buffers()])),
    }


def layout(package: SimpleNamespace, config: Any, canonical: Canonical) -> dict[str, Any]:
    """How arrays lie on 8 devices, and the programs that are compiled for these."""
    sizes, arrays, found = entries.on_devices(package, config)
    said = {part: places(jaxpr.jaxpr, canonical) for part, jaxpr in found.items()}
    return {
        "mesh": " x ".join(map(str, sizes)),
        "arrays": arrays,
        "places": {part: digest(sorted(counts.items())) for part, counts in said.items()},
        "programs": {part: canonical.jaxpr(jaxpr.jaxpr, jaxpr.consts) for part, jaxpr in found.items()},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
