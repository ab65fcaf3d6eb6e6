"""Recipes for some hardware."""

import dataclasses
import os

import jax
import pytest

from generator.language import requires
from generator.language.roles import (
    CHIPS,
    FLAGS_VARIABLE,
    HARDWARE,
    PACKAGE,
    PRESETS,
    RECIPES,
    REMAT,
    InputError,
    check_config,
    check_hardware,
    find_recipe,
    run_python,
    set_flags,
)

requires("train/hardware")


@pytest.mark.parametrize(("preset", "hardware"), RECIPES)
def test_settings_are_those_of_a_config(preset, hardware):
    settings, flags = find_recipe(preset, hardware)
    config = dataclasses.replace(PRESETS[preset], **settings)
    check_config(config)
    assert REMAT.keys() >= set(config.remat.split(","))
    assert all(flag.startswith("--") for flag in flags.split())


def test_devices_are_those_of_the_recipe(monkeypatch):
    name = next(iter(HARDWARE))
    count = HARDWARE[name].devices
    with pytest.raises(InputError, match=f"--hardware {name}: has {count} devices, and here are"):
        check_hardware(name)
    kind = CHIPS[HARDWARE[name].topology.partition(":")[0]].kinds[0]
    monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"device_kind": kind})()])
    for devices in (count, 2 * count):  # one slice, and two
        monkeypatch.setattr(jax, "device_count", lambda devices=devices: devices)
        check_hardware(name)


def test_hardware_without_a_recipe_lists_the_rows():
    process = run_python("-m", f"{PACKAGE.name}.train", "--preset", "tiny", "--hardware", "abacus-3")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    for preset, hardware in RECIPES:
        assert f"--preset {preset} --hardware {hardware}" in process.stderr


@pytest.mark.parametrize(
    ("theirs", "compiled", "left_out"),
    [
        ("", "--a=1 --b=2 --c", ""),
        ("--d=4", "--a=1 --b=2 --c --d=4", ""),
        ("--b=2", "--a=1 --c --b=2", ""),
        ("--b=3 --aa=1", "--a=1 --c --b=3 --aa=1", "--b=2 is not set"),
        ("--c=false --d  --a=0", "--b=2 --c=false --d  --a=0", "--a=1 --c is not set"),
    ],
)
def test_flags_are_added_to_those_of_the_environment(monkeypatch, capsys, theirs, compiled, left_out):
    monkeypatch.setenv(FLAGS_VARIABLE, theirs)
    set_flags("--a=1 --b=2 --c")
    assert os.environ[FLAGS_VARIABLE] == compiled
    said = capsys.readouterr().err
    assert left_out in said and bool(said) == bool(left_out)
