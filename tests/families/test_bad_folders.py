"""Hugging Face folders that someone damaged: each loads as it was, or is refused by a message that names it."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file
from selected import mostly_slow

from families.cases import SMALL
from families.weaving import fitted, woven

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 8}
CONFIGS = {"llama2": transformers.LlamaConfig(**SMALL), "qwen3_moe": transformers.Qwen3MoeConfig(**SMALL, **EXPERTS)}
VALUES = [None, "32", "", [], [3], {}, {"a": [1]}, -1, 0, 2.5, True, 10**6, 2**40, 1e300, float("nan")]
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module", params=mostly_slow(CONFIGS, "qwen3_moe"))
def good(request, tmp_path_factory):
    """A package, a folder that it loads, and what it loads from there."""
    folder, name = tmp_path_factory.mktemp(request.param), f"{request.param}_good"
    transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(folder / "good")
    library = fitted(request.param, name, folder / "good")
    package = woven(name, "cpu", folder, library, parts=("huggingface",))
    return package, folder / "good", read(package, folder / "good")


def read(package, folder):
    config, model = package.huggingface.load_hf(folder)
    return config, {name: np.asarray(x) for name, x in package.parallel.named_arrays(model).items()}


def check(package, folder, expected, label) -> bool:
    """Whether it is refused; else it has loaded what it was before."""
    try:
        _, arrays = read(package, folder)
    except package.errors.InputError as error:
        assert str(folder) in str(error) and len(str(error)) > len(str(folder)) + 20, f"{label}: {error}"
        return True
    except Exception as error:
        raise AssertionError(f"{label}: {type(error).__name__}: {error}") from error
    assert arrays.keys() == expected.keys(), label
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=label)
    return False


@pytest.mark.slow
def test_settings(good):
    """Each setting that is read, with each strange value; whole numbers are never negative, nor of another type."""
    package, folder, (config, expected) = good
    settings, path = json.loads((folder / "config.json").read_text()), folder / "config.json"
    sizes = dict(package.huggingface.hf_sizes())
    read_by_it = {*sizes, *(name for name, *_ in package.huggingface.hf_structure(config)), "rope_parameters", "dtype"}
    cases = [(name, value) for name in sorted(read_by_it | {"bos_token_id"}) for value in VALUES]
    cases += [(name, list) for name in settings]  # left out
    try:
        for name, value in cases:
            changed = {key: x for key, x in settings.items() if key != name} | ({} if value is list else {name: value})
            path.write_text(json.dumps(changed))
            refused = check(package, folder, expected, f"{name}: {value!r}")
            field = sizes.get(name)
            if field and value is not list and type(getattr(config, field)) is int and value is not None:
                assert refused or (type(value) is int and value >= 0), f"{name}: {value!r} is taken"
        for value in VALUES:
            path.write_text(json.dumps(settings | {"rope_parameters": {"rope_type": value, "rope_theta": value}}))
            check(package, folder, expected, f"rope_parameters: {value!r}")
    finally:
        path.write_text(json.dumps(settings))


def damaged_files(folder):
    """Contents that a JSON file, and a file of tensors, may be found with."""
    whole = (folder / "model.safetensors").read_bytes()
    yield from [("config.json", text) for text in (b"", b"{", b"[]", b"null", b"3", b"\xff\xfe\x00", b"[" * 100_000)]
    header = int.from_bytes(whole[:8], "little")
    for content in (b"", whole[:4], whole[:100], whole[: 8 + header], whole[:-1], whole + b"more", b"\xff" * 64):
        yield "model.safetensors", content
    maps = [None, [], {}, "x", {"a": None}, {"a": 3}, {"a": ["b"]}, {"a": ""}, {"a": ".."}, {"a": "a\0b"}]
    maps += [{"a": path} for path in ("../good/model.safetensors", "/etc/hosts", "missing.safetensors")]
    for index in [None, [], {}, 3, "x", *({"weight_map": it} for it in maps)]:
        yield INDEX, json.dumps(index).encode()
    yield INDEX, b"{"
    yield INDEX, b"\xff"


def test_files(good, tmp_path):
    package, folder, (_, expected) = good
    for number, (name, content) in enumerate(damaged_files(folder)):
        bad = shutil.copytree(folder, tmp_path / str(number))
        if name == INDEX:
            (bad / "model.safetensors").unlink()  # which comes first
        (bad / name).write_bytes(content)
        assert check(package, bad, expected, f"{name}: {content[:40]!r}"), f"{name}: {content[:40]!r} is taken"
    for name in "config.json", "model.safetensors":
        damages = [lambda path: None, os.mkdir, os.mkfifo, lambda path: path.symlink_to("/no")]
        for number, damage in enumerate(damages):
            bad = shutil.copytree(folder, tmp_path / f"{name}{number}")
            (bad / name).unlink()
            damage(bad / name)
            assert check(package, bad, expected, f"{name} {number}")
    (tmp_path / "good").mkdir()
    for path in folder.iterdir():  # as the cache of the hub has them
        (tmp_path / "good" / path.name).symlink_to(path.resolve())
    assert not check(package, tmp_path / "good", expected, "symbolic links")


def test_tensors(good, tmp_path):
    package, folder, (_, expected) = good
    tensors = load_file(folder / "model.safetensors")
    bad = shutil.copytree(folder, tmp_path / "bad")

    def is_refused(name, changed):
        save_file(changed, bad / "model.safetensors", metadata={"format": "pt"})
        return check(package, bad, expected, name)

    for name in sorted(tensors)[:: max(1, len(tensors) // 5)]:
        others, array = {key: x for key, x in tensors.items() if key != name}, tensors[name]
        broken = array.copy()
        broken.flat[0] = np.nan
        infinite = array.copy()
        infinite.flat[-1] = -np.inf
        assert is_refused(name, others)
        for wrong in array[:-1], array[None], array.astype(np.int32), array.astype(np.float64), broken, infinite:
            assert is_refused(name, others | {name: np.ascontiguousarray(wrong)}), name
        assert is_refused(name, others | {f"{name}.more": array}), name
    assert is_refused("more", tensors | {"more": np.zeros(3, np.float32)})
    shards = {"1.safetensors": tensors, "2.safetensors": {min(tensors): tensors[min(tensors)]}}
    for file, held in shards.items():
        save_file(held, bad / file)
    (bad / "model.safetensors").unlink()
    (bad / INDEX).write_text(json.dumps({"weight_map": {str(number): file for number, file in enumerate(shards)}}))
    assert check(package, bad, expected, "a tensor twice")


def test_tied_weights_given_twice(tmp_path):
    """As some files have them: the same is fine, another is not."""
    folder = tmp_path / "tied"
    config = transformers.LlamaConfig(**SMALL | {"tie_word_embeddings": True})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    package = woven("llama_tied", "cpu", tmp_path, fitted("llama2", "llama_tied", folder))
    _, expected = read(package, folder)
    tensors = load_file(folder / "model.safetensors")
    table = tensors["model.embed_tokens.weight"]
    save_file(tensors | {"lm_head.weight": table.copy()}, folder / "model.safetensors")
    assert not check(package, folder, expected, "the same")
    save_file(tensors | {"lm_head.weight": table + 1}, folder / "model.safetensors")
    assert check(package, folder, expected, "another")


def test_heads_that_are_rotated_in_part_are_refused_by_a_package_for_whole_ones(tmp_path):
    """A setting of the model type, in each place where transformers reads it."""
    config = transformers.Phi3Config(**SMALL, pad_token_id=0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "hf")
    library = fitted("phi3", "phi3_whole", tmp_path / "hf")
    package = woven("phi3_whole", "cpu", tmp_path, library)
    path = tmp_path / "hf/config.json"
    hf = json.loads(path.read_text())
    package.huggingface.read_hf_config(tmp_path / "hf")
    scaling = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    rest = {name: value for name, value in hf.items() if name not in scaling | {"rope_parameters": None}}
    for changed in {"partial_rotary_factor": 0.5}, {"rope_scaling": scaling}, {"rope_parameters": scaling}:
        path.write_text(json.dumps(rest | changed))
        with pytest.raises(package.errors.InputError, match=r"partial_rotary_factor is 0\.5, and this package is for"):
            package.huggingface.read_hf_config(tmp_path / "hf")
