"""The search for a plan: its candidates divide, its front has no worse plan, its estimates follow the sizes."""

import dataclasses
import math

import pytest

from generator.language import requires
from generator.language.roles import (
    CHIPS,
    DEFAULT_MACHINE,
    PACKAGE,
    SMALL,
    InputError,
    Plan,
    candidates,
    draw,
    estimate,
    factors,
    front,
    machine,
    measure,
    run_python,
)

requires("plan/plan")

ONE = {field.name: 1 for field in dataclasses.fields(SMALL) if field.name.startswith("mesh_")}
CONFIG = dataclasses.replace(SMALL, **ONE, batch_size=16)


def test_candidates_divide_over_the_devices():
    found = candidates(CONFIG, 8, widest=2)
    assert len(set(found)) == len(found) > 10
    for config in found:
        sizes = {name: getattr(config, name) for name in ONE}
        assert math.prod(sizes.values()) == 8 and config.mesh_tensor <= 2
        assert config.batch_size % (config.accumulation * config.mesh_data * config.mesh_fsdp) == 0
        assert config.heads % config.mesh_tensor == 0 and config.width % config.mesh_fsdp == 0
    assert {config.accumulation for config in found} >= {1, 2} and len({config.remat for config in found}) > 2
    assert sorted(factors(4, 2)) == [(1, 4), (2, 2), (4, 1)]


def test_an_estimate_follows_the_sizes():
    chip, _, places, _ = machine(DEFAULT_MACHINE, 0)
    full, kept = (measure(dataclasses.replace(CONFIG, batch_size=1, remat=x)) for x in ("full", "none"))
    chunk = SMALL.vocab_size * SMALL.sequence_length  # the logits of one sequence
    assert measure(dataclasses.replace(CONFIG, batch_size=1, remat="full", logits_per_chunk=chunk)) == full
    assert full.stored > 3 * full.parameters * 0.99  # Adam's moments
    assert full.kept < kept.kept and full.flops > kept.flops  # what is not kept is computed again
    spread = dataclasses.replace(CONFIG, mesh_data=len(places), batch_size=len(places))
    doubled = dataclasses.replace(spread, batch_size=2 * len(places))
    once, twice = (estimate(config, CHIPS[chip], places) for config in (spread, doubled))
    assert twice.memory > once.memory and twice.seconds > once.seconds > 0


def test_the_front_has_no_plan_that_another_beats(tmp_path):
    plans = [Plan(CONFIG, memory, seconds) for memory, seconds in ((4, 1.0), (2, 2.0), (3, 3.0), (1, 4.0), (1, 5.0))]
    best = front(plans)
    assert [(plan.memory, plan.seconds) for plan in best] == [(4, 1.0), (2, 2.0), (1, 4.0)]
    draw(plans, best, 5, str(tmp_path / "plan.png"))
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_estimates_are_shown_without_compiling():
    flags = ["--compile", "0", "--image", "", "--layers", str(SMALL.layers), "--batch-size", "512"]
    process = run_python("-m", f"{PACKAGE.name}.plan", *flags)
    assert process.returncode == 0, process.stderr
    head, _, _, *rows = process.stdout.splitlines()  # and no progress bar
    assert head.startswith("tiny on ") and rows and all("| estimated |" in row for row in rows)


def test_what_cannot_be_planned_is_told():
    shapes = [(f"{DEFAULT_MACHINE}{more}", 0) for more in ("x", "x2x2", "x-4", ".5")]
    for hardware, devices in (("v99", 0), (DEFAULT_MACHINE, 3000001), ("", 0), *shapes):
        with pytest.raises(InputError, match=f"--hardware {hardware} --devices {devices}: there is no such"):
            machine(hardware, devices)
    with pytest.raises(InputError, match="--layers 0: must be"):
        candidates(dataclasses.replace(CONFIG, layers=0), 8, widest=2)
    for flags, words in (
        (["--hardware", "v99"], "--hardware v99 --devices 0: there is no such"),
        (["--remat", "full"], "--remat full: plan searches for it"),
        (["--seconds", "nan"], "--seconds nan: must be"),
    ):
        process = run_python("-m", f"{PACKAGE.name}.plan", *flags)
        assert process.returncode == 2 and words in process.stderr and "Traceback" not in process.stderr
