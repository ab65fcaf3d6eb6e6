"""Recipes for some hardware."""

import dataclasses

import jax
import pytest

from generator.language import requires
from generator.language.roles import (
    HARDWARE,
    PACKAGE,
    PRESETS,
    RECIPES,
    InputError,
    check_config,
    check_hardware,
    find_recipe,
    remat_policy,
    run_python,
)

requires("hardware")


@pytest.mark.parametrize(("preset", "hardware"), RECIPES)
def test_settings_are_those_of_a_config(preset, hardware):
    settings, flags = find_recipe(preset, hardware)
    check_config(config := dataclasses.replace(PRESETS[preset], **settings))
    remat_policy(config.remat)
    assert all(flag.startswith("--") for flag in flags.split())


def test_devices_are_those_of_the_recipe(monkeypatch):
    name = next(iter(HARDWARE))
    count = HARDWARE[name][1]
    with pytest.raises(InputError, match=f"--hardware {name}: has {count} devices, and here are"):
        check_hardware(name)
    kind = HARDWARE[name][0].split("|")[0].removesuffix("?").replace(".*", " 80GB")
    monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"device_kind": kind})()])
    for devices in (count, 2 * count):  # one slice, and two
        monkeypatch.setattr(jax, "device_count", lambda devices=devices: devices)
        check_hardware(name)


def test_hardware_without_a_recipe_lists_the_rows():
    process = run_python("-m", f"{PACKAGE.name}.train", "--preset", "tiny", "--hardware", "abacus-3")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    for preset, hardware in RECIPES:
        assert f"--preset {preset} --hardware {hardware}" in process.stderr
