"""Adapters of experts in peft, by the names that experts have in checkpoints: transformers has them in one tensor.

Source: peft's documentation, "PEFT checkpoint format"; peft 0.21, utils/transformers_weight_conversion.py.
"""

from collections.abc import Collection, Mapping

from generator.language import requires, setting, splice
from generator.language.roles import InputError, LinearMap, PeftModule, linear_maps, peft_modules

requires("huggingface/adapter_file", "expert_linear")


def without_experts(
    others: set[str],
    written: Collection[str],
    modules: Mapping[str, PeftModule],
    maps: Mapping[str, LinearMap],
    adapted: Collection[str],
) -> set[str]:
    """Returns those of the other modules that peft could find in place of the written ones.

    Raises InputError if peft would drop adapters that are to be written, of these modules and maps.
    """
    experts = {name for name, module in modules.items() if maps[module.paths[0]].experts}
    if setting("experts_in_peft"):
        leaves = tuple({f".{name.rpartition('.')[2]}" for name in experts})
        others = {name for name in others if not name.endswith(leaves)}
        dropped = [name for name in written if name.endswith(leaves) and name not in experts]
        reason = "peft takes a module of this name for experts, and would drop its adapter"
        if not dropped:
            blocks = {path.rpartition(".")[0] for path in adapted if maps[path].experts}
            pairs = [{f"{block}.gate", f"{block}.up"} & {*adapted} for block in blocks]
            dropped = sorted(path for pair in pairs if len(pair) == 1 for path in pair)
            reason = "peft has adapters of experts' gate and up together only"
    else:
        others = others - experts
        dropped = [name for name in written if name in experts]
        reason = "transformers has these experts in one tensor, and peft would drop their adapters"
    if dropped:
        more = f" and {len(dropped) - 3:,} more" if len(dropped) > 3 else ""
        raise InputError(
            f"{', '.join(dropped[:3])}{more}: {reason}: export the merged model, or train with "
            "--lora-targets that leave these out"
        )
    return others


@splice("save_adapters.modules")
def _(others, written, modules, maps, adapted):
    others = without_experts(others, written, modules, maps, adapted)


@splice("test_adapter_file.targets", optional=True)
def _(config, targets):
    names = {path.rpartition(".")[2] for path in linear_maps(config)} if targets == "all" else {*targets.split(",")}
    targets = ",".join(sorted(names - {"gate", "up", "down"}))  # of experts or of what has their names


@splice("test_adapter_file.modules", optional=True)
def _(config, modules):
    named = peft_modules(linear_maps(config), config).items()
    modules = {name.rpartition(".")[2] for name, it in named if not it.paths[0].endswith(("gate", "up", "down"))}
