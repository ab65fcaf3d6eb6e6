"""Each field of Config, given what it must not be: refused by a message before anything is made, or trained with."""

from __future__ import annotations

import dataclasses
import importlib
import math
import shutil
import typing

import pytest
from whole import NAMES as PACKAGES

from robustness.programs import assert_trained, drawn, generate, module, train

INTEGERS = ["0", "-1", "-2", str(10**30), str(2**31), "1.5", "nan", "", "x"]
NUMBERS = ["0", "-1", "nan", "inf", "-inf", "1e300", "1e-300", "", "x"]
TEXTS = ["\0", "\ud800", "a\nb", "/proc/no/such", "x" * 5000, "~nobody-of-this-name/x", "["]
NAMES = {int: INTEGERS, float: NUMBERS, str: TEXTS}
FIELDS = dataclasses.fields(module("config").Config)


def kind_of(field: dataclasses.Field) -> type:
    """Without the bounds of a number."""
    return typing.get_args(field.type)[0] if typing.get_origin(field.type) is typing.Annotated else field.type


FLAGS = [
    (f"--{f.name.replace('_', '-')}", kind_of(f), value)
    for f in FIELDS
    for value in NAMES.get(kind_of(f), ["", "x", "None"])
]
FLAGS.remove(("--hang-seconds", float, "1e-300"))  # does as it says, and ends the program at once
# what a number may be beyond positive ones
ZERO = {"--eval-share", "--z-loss", "--warmup-ratio", "--final-ratio", "--adam-b1", "--adam-b2", "--weight-decay"}
ALLOWED = {
    "0": ZERO
    | {"--seed", "--keep-every", "--hang-seconds", "--max-skipped", "--check-every", "--kl-coefficient"}
    | {"--local-checkpoint-every", "--eval-tasks-every", "--eval-tasks-limit", "--pipeline-microbatches"},
    "1e-300": ZERO,  # 0, in fp32
    "-1": {"--mesh-data", "--mesh-fsdp", "--mesh-tensor", "--mesh-context", "--mesh-stage"},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """For all runs that are refused."""
    return tmp_path_factory.mktemp("run")


@pytest.mark.parametrize(("flag", "kind", "value"), drawn(FLAGS), ids=repr)
def test_a_field(flag, kind, value, data_file, directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    number = kind in (int, float)
    allowed = not number or flag in ALLOWED.get(value, ())
    place = tmp_path / "run" if allowed else directory
    ended = train(f"--data={data_file}", f"--checkpoint-dir={place}", f"{flag}={value}")
    if number:
        assert allowed or (ended.refused and flag in ended.err), f"{flag} {value}: {ended}"
    if ended.refused:
        assert not number or not allowed or flag in ("--mesh-data", "--mesh-tensor"), ended.err
        assert not list(place.glob("*")), "something is left that is in the way"
    else:
        (metrics,) = tmp_path.rglob("metrics.jsonl")
        assert_trained(metrics.parent)


TOGETHER = [
    ["--kv-heads=2", "--heads=3"],
    ["--head-size=7"],
    ["--batch-size=3", "--accumulation=2"],
    ["--mesh-data=2"],
    ["--mesh-data=0"],
    ["--mesh-data=-1", "--mesh-fsdp=-1"],
    ["--mesh-tensor=2147483647", "--mesh-data=2147483647", "--mesh-fsdp=2147483647"],
    ["--vocab-size=257"],
    ["--batch-size=0", "--width=0", "--learning-rate=nan"],
]


@pytest.mark.parametrize("flags", TOGETHER, ids=" ".join)
def test_fields_that_do_not_go_together(flags, data_file, directory):
    ended = train(f"--data={data_file}", f"--checkpoint-dir={directory}", *flags)
    assert ended.refused
    if len(flags) == 3 and "--width=0" in flags:
        assert all(flag.partition("=")[0] in ended.err for flag in flags)  # all at once


def test_a_good_run_after_all_that_were_refused(data_file, directory):
    assert train(f"--data={data_file}", f"--checkpoint-dir={directory}").code == 0
    assert_trained(directory)


VALUES = [0, -1, 10**30, math.nan, math.inf, -math.inf, 1e300, None, True, "x", [], {}, "3"]


@pytest.mark.parametrize("package", [name for name in PACKAGES if name.endswith("_tpu")])
def test_the_fields_of_a_package(package):
    """Values as an edited checkpoint has them; published sizes are well."""
    config, errors = (importlib.import_module(f"{package}.{name}") for name in ("config", "errors"))
    for preset in config.PRESETS.values():
        errors.check_config(preset)
    tiny = config.PRESETS["tiny"]
    for field in dataclasses.fields(tiny):
        for value in VALUES:
            changed = dataclasses.replace(tiny, **{field.name: value})
            text = field.type is str and isinstance(value, str)
            zero = type(value) is int and value in (0, -1) and kind_of(field) in (int, float)
            if text or zero or (field.type is bool and value in (0, True)):
                continue  # some may be, as test_a_field tells
            with pytest.raises(errors.InputError, match=f"^--{field.name.replace('_', '-')} "):
                errors.check_config(changed)


PAIRS = {
    "qwen3_moe_tpu": {"experts_per_token": 10**6},
    "deepseek_v3_tpu": {"dense_layers": 10**6},
    "gpt_oss_tpu": {"rope_fast_turns": 0.5},
    "llama3_tpu": {"rope_high_turns": 0.5},
    "gpt2_tpu": {"sequence_length": 10**6},
    "gemma2_tpu": {"layers": 7},
    "mixtral_tpu": {"kv_heads": 7},
}


@pytest.mark.parametrize(("package", "changes"), PAIRS.items(), ids=PAIRS)
def test_fields_of_a_package_that_do_not_go_together(package, changes):
    config, errors = (importlib.import_module(f"{package}.{name}") for name in ("config", "errors"))
    with pytest.raises(errors.InputError, match=f"^--{next(iter(changes)).replace('_', '-')} "):
        errors.check_config(dataclasses.replace(config.PRESETS["tiny"], **changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_file):
    folder = tmp_path_factory.mktemp("trained")
    assert train(f"--data={data_file}", f"--checkpoint-dir={folder}").code == 0
    return folder


WAYS = [
    ["--max-tokens=0"], ["--max-tokens=-1"], ["--max-tokens=1000"], [f"--max-tokens={10**30}"], ["--max-tokens=x"],
    ["--temperature=nan"], ["--temperature=inf"], ["--temperature=-1"], ["--temperature=1e300"],
    ["--top-p=nan"], ["--top-p=0"], ["--top-p=2"], ["--top-p=-inf"], ["--top-k=-1"], ["--top-k=259"],
    [f"--top-k={10**30}"], ["--seed=-1"], [f"--seed={10**30}"], ["--prompt=\udcff"], [f"--prompt={'x' * 40}"],
]  # fmt: skip
GOOD_WAYS = [
    ["--prompt="],
    ["--prompt=\0"],
    ["--temperature=1e-30", "--top-p=1e-6"],
    ["--temperature=1e30", "--top-k=1"],
]


@pytest.mark.parametrize("flags", WAYS, ids=repr)
def test_generate_refuses(flags, trained):
    ended = generate(trained, *flags)
    assert ended.refused and flags[0].partition("=")[0].strip("-") in ended.err.replace("_", "-")


@pytest.mark.parametrize("flags", GOOD_WAYS, ids=repr)
def test_generate_takes(flags, trained):
    assert generate(trained, *flags).code == 0


@pytest.mark.parametrize("place", ["missing", "a file", "empty", "other", ""])
def test_generate_from_nothing(place, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").write_text("x")
    (tmp_path / "other/3").mkdir(parents=True)
    assert generate(tmp_path / place if place else "").refused


@pytest.mark.parametrize("place", ["{file}", "{file}/run", "/proc/run", "/dev/null"])
def test_a_path_that_cannot_be_a_directory_is_a_mistake(place, data_file):
    place = place.format(file=data_file)
    ended = train(f"--data={data_file}", f"--checkpoint-dir={place}")
    assert ended.code == 2 and place in ended.err, ended


def test_a_run_that_diverges_keeps_what_was_good(data_file, tmp_path):
    """Steps that are skipped take no checkpoint's place; without the one of the step that went wrong, it goes on."""
    place = [f"--data={data_file}", f"--checkpoint-dir={tmp_path / 'run'}", "--checkpoint-every=1", "--warmup-ratio=0"]
    assert train(*place, "--steps=2").code == 0
    ended = train(*place, "--steps=30", "--learning-rate=1e30", "--max-skipped=5", "--keep-last=2")
    assert ended.code == 2 and "no finite gradients in 6 steps up to 9: lower --learning-rate" in ended.err
    assert {path.name for path in tmp_path.glob("run/[0-9]*")} == {"2", "3"}
    shutil.rmtree(tmp_path / "run/3")
    assert train(*place, "--steps=4").code == 0
    assert_trained(tmp_path / "run", 4)
