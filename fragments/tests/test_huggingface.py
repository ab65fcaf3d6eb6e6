"""Hugging Face import and export of tensors and settings, against transformers."""

import dataclasses
import importlib
import json
import os
import shutil

import jax
import numpy as np
import pytest
import tokenizers
from flax import nnx
from safetensors.numpy import load_file, save_file

from generator.language import excludes, point, setting
from generator.language.roles import (
    PRESETS,
    Decoder,
    InputError,
    assert_same,
    check_logits_and_gradients,
    exported_config,
    hf_buffers,
    hf_sizes,
    hf_views,
    in_transformers,
    load_hf,
    load_tokenizer,
    named_arrays,
    plain_bytes,
    random_model,
    read_tensors,
    save_hf,
)

excludes("reward_head")  # whose models have no logits in transformers


torch = pytest.importorskip("torch", reason="parity needs torch and transformers: pip install '.[test]'")


transformers = pytest.importorskip("transformers", reason="parity needs torch and transformers: pip install '.[test]'")


CONFIG = exported_config()


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIG)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("hf") / "exported"
    save_hf(CONFIG, model, directory)
    return directory


@pytest.fixture
def copied(exported, tmp_path):
    """Makes a copy to damage."""
    return shutil.copytree(exported, tmp_path / "copied")


def test_logits_and_gradients_equal_transformers(model, exported, tmp_path):
    # 0 and 1 are padding in some families, to which torch gives no gradient
    tokens = np.random.default_rng(0).integers(2, CONFIG.vocab_size, (2, 17))
    reference = in_transformers(exported)
    ids = torch.from_numpy(tokens)
    check_logits_and_gradients(CONFIG, model, reference, ids, tmp_path / "gradients")


@pytest.mark.parametrize("max_shard_bytes", [5_000_000_000, 1_000_000])
def test_round_trip_is_bit_identical(model, tmp_path, max_shard_bytes):
    save_hf(CONFIG, model, tmp_path / "ours", max_shard_bytes=max_shard_bytes)
    in_transformers(tmp_path / "ours").save_pretrained(tmp_path / "theirs", max_shard_size=max_shard_bytes)
    for name in "ours", "theirs":
        assert (tmp_path / name / "model.safetensors.index.json").exists() == (max_shard_bytes < 5_000_000_000)
    assert_same(read_tensors(tmp_path / "ours"), read_tensors(tmp_path / "theirs"))
    config, again = load_hf(tmp_path / "theirs")
    ours, theirs = named_arrays(again), named_arrays(model)
    point("test_huggingface.round_trip", ours, theirs, again, model)
    assert_same(ours, theirs)
    fields = ["dtype", *(field for _, field in hf_sizes())]
    assert [getattr(config, field) for field in fields] == [getattr(CONFIG, field) for field in fields]


def test_every_parameter_has_a_tensor():
    config = PRESETS["tiny"]
    arrays = named_arrays(jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0))))
    point("test_huggingface.parameters", arrays)
    views = hf_views({name: np.empty(x.shape, np.int8) for name, x in arrays.items()}, config)
    assert sum(view.size for view in views.values()) == sum(x.size for x in arrays.values())


def test_shards_hold_no_more_than_they_may(model, exported, tmp_path):
    sizes = [x.nbytes for x in read_tensors(exported).values()]
    save_hf(CONFIG, model, tmp_path / "ours", max_shard_bytes=max(sizes))
    index = json.loads((tmp_path / "ours/model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert [file.name for file in files] == [
        f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))
    ]
    assert all(sum(x.nbytes for x in load_file(file).values()) <= max(sizes) for file in files)
    assert index["metadata"]["total_size"] == sum(sizes)


def test_all_wrong_tensors_are_listed_at_once(copied):
    tensors = read_tensors(copied)
    missing, short, whole = sorted(tensors)[:3]
    shapes = {name: list(tensors[name].shape) for name in (missing, short, whole)}
    del tensors[missing]
    tensors[short] = tensors[short][1:]
    tensors[whole] = tensors[whole].astype(np.int8)
    tensors[f"{whole}.more"] = np.zeros(31, np.float32)
    tensors |= {f"{whole}{end}": np.zeros(4, np.float32) for end in hf_buffers()}  # not parameters: skipped
    save_file(tensors, copied / "model.safetensors")
    with pytest.raises(InputError) as error:
        load_hf(copied)
    assert str(error.value).splitlines() == [
        f"{copied}: its tensors are not those of its config.json:",
        f"  missing: {missing} {shapes[missing]}",
        f"  wrong: {short} F32 {list(tensors[short].shape)}, not F32, BF16 or F16 {shapes[short]}",
        f"  wrong: {whole} I8 {shapes[whole]}, not F32, BF16 or F16 {shapes[whole]}",
        f"  unknown: {whole}.more F32 [31]",
    ]


def test_another_model_type_is_an_error(copied):
    hf = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(hf | {"model_type": "another"}))
    woven = setting("model_type")
    with pytest.raises(InputError, match=f'model_type is "another", and this package is for "{woven}": give'):
        load_hf(copied)


def set_index(directory, index):
    (directory / "model.safetensors").unlink(missing_ok=True)  # which comes first
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_numbers_that_are_not_finite_are_named(copied):
    tensors = read_tensors(copied)
    name = min(tensors)
    tensors[name].flat[-1] = np.nan
    save_file(tensors, copied / "model.safetensors")
    with pytest.raises(InputError, match=f"{copied}: {name} has numbers that are not finite"):
        load_hf(copied)


@pytest.mark.parametrize(
    "damage, found",
    [
        (lambda d: (d / "config.json").unlink(), "config.json: [Errno 2] No such file or directory"),
        (lambda d: (d / "config.json").write_text("{"), "config.json: Expecting property name"),
        (lambda d: (d / "config.json").write_text("[]"), "config.json: not a JSON object"),
        (lambda d: set_index(d, {"weight_map": {"a": "../b"}}), "model.safetensors.index.json: its weight_map is not"),
        (lambda d: set_index(d, {"weight_map": None}), "model.safetensors.index.json: its weight_map is not"),
        (lambda d: (d / "model.safetensors").unlink(), "model.safetensors: cannot be read as safetensors"),
        (lambda d: (d / "model.safetensors").write_bytes(b"cut"), "model.safetensors: cannot be read as safetensors"),
    ],
)
def test_unreadable_files_are_named(copied, damage, found):
    damage(copied)
    with pytest.raises(InputError) as error:
        load_hf(copied)
    assert str(error.value).startswith(f"{copied}/{found}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(copied, name, make):
    plain_bytes(copied)
    (copied / name).unlink(missing_ok=True)
    make(copied / name)
    with pytest.raises(InputError, match=f"{name}.* is not a file"):
        load_hf(copied)
        load_tokenizer(str(copied / "tokenizer.json"))


def test_a_single_file_comes_before_an_index_as_in_transformers(model, copied):
    saved = read_tensors(copied)
    stale = {name: x + 1 for name, x in saved.items()}
    save_file(stale, copied / "stale.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(stale, "stale.safetensors")}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    theirs, (_, ours) = in_transformers(copied), load_hf(copied)
    assert_same(named_arrays(ours), named_arrays(model))
    name = max(saved, key=lambda name: saved[name].size)
    np.testing.assert_array_equal(theirs.state_dict()[name], saved[name])


@pytest.mark.parametrize(("number", "fits"), [(65504, True), (65519, True), (65520, False), (-1e38, False)])
def test_an_export_in_float16_has_no_infinities(model, tmp_path, number, fits):
    arrays = named_arrays(model)
    first = max(arrays, key=lambda name: arrays[name].size)
    arrays = arrays | {first: arrays[first].at[(0,) * arrays[first].ndim].set(number)}
    large = jax.tree.unflatten(jax.tree.structure(model), arrays.values())
    if fits:
        save_hf(CONFIG, large, tmp_path / "half", "float16")
    else:
        with pytest.raises(InputError, match=r"\.weight has numbers that are not finite in float16"):
            save_hf(CONFIG, large, tmp_path / "half", "float16")
    save_hf(CONFIG, large, tmp_path / "bf16", "bfloat16")


def test_export_overwrites_nothing(model, exported):
    with pytest.raises(FileExistsError):
        save_hf(CONFIG, model, exported)


@pytest.mark.parametrize("name", ["hf_tensors", "hf_layer_tensors"])
def test_a_parameter_without_a_tensor_is_named(name, model, copied, tmp_path, monkeypatch):
    """It is neither read from uninitialised memory nor left out of an export."""
    module = importlib.import_module("..huggingface", __package__)
    rows = list(getattr(module, name)())
    arrays = named_arrays(model)
    place = next(i for i, row in enumerate(rows) if any(x == row[0] or x.endswith(f".{row[0]}") for x in arrays))
    monkeypatch.setattr(module, name, lambda: iter(rows[:place] + rows[place + 1 :]))
    tensors = read_tensors(copied)
    stem = rows[place][1].partition("{}")[0], rows[place][1].rpartition("{}")[2]
    kept = {n: x for n, x in tensors.items() if not (n.startswith(stem[0]) and n.endswith(stem[1]))}
    save_file(kept, copied / "model.safetensors")
    with pytest.raises(InputError, match=f"no tensor of a checkpoint holds .*{rows[place][0]}"):
        load_hf(copied)
    with pytest.raises(InputError, match=f"no tensor of a checkpoint holds .*{rows[place][0]}"):
        save_hf(CONFIG, model, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_layout_that_is_no_view_is_refused(copied, monkeypatch):
    """Such as `d c n h -> (n c h) d`, which copies: writes do not reach the parameter."""
    module = importlib.import_module("..huggingface", __package__)
    rearrange = module.rearrange
    monkeypatch.setattr(module, "rearrange", lambda array, layout: rearrange(array, layout).copy())
    with pytest.raises(InputError, match="no tensor of a checkpoint holds all of "):
        load_hf(copied)


def test_changed_settings_are_written_over_those_that_were_imported(model, copied, tmp_path):
    said = json.loads((copied / "config.json").read_text()) | {"bos_token_id": 11, "of_use": {}}
    (copied / "config.json").write_text(json.dumps(said))
    config = dataclasses.replace(load_hf(copied)[0], init_std=0.125, context_length=CONFIG.context_length)
    save_hf(config, model, tmp_path / "ours")
    ours = json.loads((tmp_path / "ours/config.json").read_text())
    assert (ours["initializer_range"], ours["bos_token_id"], ours["of_use"]) == (0.125, 11, {})
    again = load_hf(tmp_path / "ours")[0]
    assert dataclasses.replace(again, tokenizer="") == dataclasses.replace(config, tokenizer="")


def test_a_model_names_its_ends(model, exported, tmp_path):
    """Otherwise transformers would use other tokens as bos and eos, such as 1 and 2."""
    hf = transformers.AutoConfig.from_pretrained(exported)
    assert (hf.bos_token_id, hf.eos_token_id) == (256, 257)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"text": 0, "</s>": 7}, "text"))
    words.save(str(tmp_path / "tokenizer.json"))
    save_hf(CONFIG, model, tmp_path / "words", tokenizer=str(tmp_path / "tokenizer.json"))
    assert transformers.AutoConfig.from_pretrained(tmp_path / "words").eos_token_id == 7
