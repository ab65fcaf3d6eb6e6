"""A search for the best plan: mesh, microbatches, and what is recomputed.

All candidates are ranked by a model of their memory and seconds that compiles nothing; the best ones are compiled.
"""

import dataclasses
import functools
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jax
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from generator.language.roles import (
    ARCHITECTURE,
    CHIPS,
    DEFAULT_MACHINE,
    HARDWARE,
    PRESETS,
    REMAT,
    Config,
    InputError,
    Plan,
    abstract,
    abstract_batch,
    check_config,
    ending_with_messages,
    estimate,
    flops_per_token,
    machine,
    new_state,
    on_mesh,
)

KEPT = "full", "context", "context,gate", "attention", "attention,gate", "attention,gate,up", "dots", "none"  # to try


def factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields the ways to write a number as a product of so many, in order."""
    if parts == 1:
        yield (number,)
        return
    for first in (x for x in range(1, number + 1) if number % x == 0):
        yield from ((first, *others) for others in factors(number // first, parts - 1))


SEARCHED = "mesh_data", "mesh_fsdp", "mesh_tensor", "accumulation", "remat"


def candidates(config: Config, devices: int, widest: int) -> list[Config]:
    """Returns configs that divide over so many devices; axes besides data, fsdp and tensor stay as they are.

    Raises InputError if there is none.
    """
    fixed = SEARCHED[:3]
    others = {n: v for n, v in dataclasses.asdict(config).items() if n.startswith("mesh_") and n not in fixed}
    if min(others.values(), default=1) < 1 or devices % math.prod(others.values()):
        flags = " ".join(f"--{name.replace('_', '-')} {size}" for name, size in others.items())
        raise InputError(f"{flags}: must be at least 1, and their product divide {devices} devices")
    all_found: list[Config] = []
    problem = InputError(f"--widest {widest}: give a larger one")
    choices = {"accumulation": [1, 2, 4], "remat": [x for x in KEPT if REMAT.keys() >= set(x.split(","))]}
    for sizes in factors(devices // math.prod(others.values()), len(fixed)):
        on = dataclasses.replace(config, **dict(zip(fixed, sizes, strict=True)))
        try:
            if sizes[2] > widest:
                continue
            abstract(lambda: new_state(config), on_mesh(on))
            for values in itertools.product(*choices.values()):
                plan = dataclasses.replace(on, **dict(zip(choices, values, strict=True)))
                check_config(plan)
                abstract_batch(plan, on_mesh(plan))
                all_found.append(plan)
        except InputError as error:  # a size does not divide: nor do more microbatches
            problem = error
    if not all_found:
        raise InputError(f"no plan for {devices} devices: {problem}")
    return all_found


def compile_plan(plan: Plan, preset: str, flags: list[str], limit: float) -> Plan:
    """Returns the plan with its memory and seconds as compiled, in a process of its own."""
    overrides = plan.overrides(preset) | {"batch_size": plan.config.batch_size}
    command = [sys.executable, "-m", f"{__package__}.compile", "--preset", preset, *flags, "--json"]
    for name, value in overrides.items():
        flag = name.replace("_", "-")
        command.append(f"--{'no-' * (value is False)}{flag}" if isinstance(value, bool) else f"--{flag}={value}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return dataclasses.replace(plan, verdict=f"compiles for more than {limit:.0f} s")
    if done.returncode not in (0, 3):
        return dataclasses.replace(plan, verdict=f"fails: {' '.join(done.stderr.split()[-20:])}")
    verdict = "does not fit" if done.returncode else "fits"
    if not done.stdout.strip():
        return dataclasses.replace(plan, verdict=verdict)
    report = json.loads(done.stdout)
    return dataclasses.replace(plan, memory=report["bytes"], seconds=report["seconds"], verdict=verdict)


def front(plans: list[Plan]) -> list[Plan]:
    """Returns the plans than which none is faster with as little memory, the fastest first."""
    fastest = sorted(plans, key=lambda plan: (plan.seconds, plan.memory))
    return [p for i, p in enumerate(fastest) if all(p.memory < other.memory for other in fastest[:i])]


def draw(plans: list[Plan], best: list[Plan], limit: float, image: str) -> None:
    """Draws memory against seconds, with the front as a line."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for verdict in dict.fromkeys(plan.verdict for plan in plans):
        alike = [plan for plan in plans if plan.verdict == verdict]
        axes.plot([p.memory / 2**30 for p in alike], [p.seconds for p in alike], "o", label=verdict)
    axes.plot([p.memory / 2**30 for p in best], [p.seconds for p in best], "-", label="Pareto front")
    axes.axvline(limit / 2**30, linestyle=":", label="memory of a device")
    axes.set(xlabel="memory of a device (GiB)", ylabel="predicted time of a step (s)", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(image, dpi=150)


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Searches for the best mesh, microbatches and --remat of a batch on some hardware."""

    config: tyro.conf.OmitArgPrefixes[Config]
    preset: Literal[*PRESETS] = "tiny"  # settings, which those below override
    hardware: str = DEFAULT_MACHINE  # what it is planned for: of a recipe, or a topology or chip of compile
    devices: int = 0  # how many; 0: a node, or all of a slice
    compile: int = 6  # the best estimates are compiled until so many fit; 0: none, and ten estimates are shown
    seconds: float = 900.0  # at most, to compile one
    widest: int = 8  # largest --mesh-tensor
    image: str = "plan.png"  # file for the plot of memory and seconds; "": none


@ending_with_messages()
def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    parse = functools.partial(tyro.cli, PlanCommand, prog=f"python -m {__package__}.plan")
    first_pass, _ = parse(default=PlanCommand(PRESETS["tiny"]), add_help=False, return_unknown_args=True)
    command = parse(default=PlanCommand(PRESETS[first_pass.preset]))
    for name in SEARCHED:
        if (value := getattr(command.config, name)) != getattr(PRESETS[command.preset], name):
            raise InputError(f"--{name.replace('_', '-')} {value}: plan searches for it: leave it out")
    if command.compile < 0:
        raise InputError(f"--compile {command.compile}: must be at least 0")
    if not 0 < command.seconds <= 1e6:
        raise InputError(f"--seconds {command.seconds}: must be above 0, and at most 1,000,000")
    image = Path(command.image).absolute()
    if command.image and (image.suffix != ".png" or not image.parent.is_dir() or image.is_dir()):
        raise InputError(f"--image {command.image}: give a file NAME.png in a folder that exists")
    chip, limit, places, flags = machine(command.hardware, command.devices)
    plans_to_try = candidates(command.config, len(places), command.widest)
    progress = functools.partial(track, console=Console(stderr=True))
    plans = [estimate(config, CHIPS[chip], places) for config in progress(plans_to_try, "estimates")]
    fitting = sorted((p for p in plans if p.memory < 1.1 * limit), key=lambda plan: plan.seconds)
    done = fitting[:10]
    if command.compile:
        done = []
        for plan in progress(fitting[: 4 * command.compile], "compiles"):
            done.append(compile_plan(plan, command.preset, flags, command.seconds))
            if [x.verdict for x in done].count("fits") == command.compile:
                break
    best = front([plan for plan in done if plan.verdict == "fits"])
    print(f"{command.preset} on {len(places)} {chip}: {len(plans)} candidates, {len(fitting)} fit as estimated")
    print("| GiB | seconds | MFU | estimated s | verdict | settings |\n|---|---|---|---|---|---|")
    tokens = command.config.batch_size * command.config.sequence_length / len(places)
    for plan, before in sorted(zip(done, fitting, strict=False), key=lambda pair: pair[0].seconds):
        mfu = tokens * flops_per_token(plan.config, True) / plan.seconds / CHIPS[chip].peak
        said = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in plan.overrides(command.preset).items())
        numbers = f"{plan.memory / 2**30:.1f} | {plan.seconds:.3f} | {mfu:.1%} | {before.seconds:.3f}"
        print(f"| {numbers} | {plan.verdict}{', on the front' * (plan in best)} | {said} |")
    if best:
        settings = ", ".join(f"{name} = {json.dumps(v)}" for name, v in best[0].overrides(command.preset).items())
        name = command.hardware if command.hardware in HARDWARE else "NAME"
        print(f'\n[[recipe]]\nhardware = "{name}"\narchitectures = ["{ARCHITECTURE}"]')
        print(f'presets = ["{command.preset}"]\nsettings = {{ {settings} }}')
        print(f'figures = "compiled"\nwhy = "{best[0].memory / 2**30:.1f} GiB, {best[0].seconds:.3f} s as predicted"')
        if name == "NAME":
            print(f"# of a [hardware.NAME] with devices = {len(places)}, topology = {json.dumps(flags[1])}")
    if command.image:
        draw([*plans, *done], best, limit, command.image)
        print(f"plot: {command.image}")
    if not (best or (fitting and not command.compile)):
        least = min(plan.memory for plan in done or plans) / 2**30
        remedy = "give fewer sequences, more devices, or with --compile more plans"
        print(f"error: no plan fits {limit / 2**30:g} GiB: the least has {least:.1f}: {remedy}", file=sys.stderr)
        raise SystemExit(3)


if __name__ == "__main__":
    main()
