"""Adapters of one batch, against the model that each gives when it is merged into the base alone."""

import dataclasses
import functools
import json
import re
import shutil
import sys

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from generator.language import point, requires, splice
from generator.language.roles import (
    WIDE,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    SamplingParams,
    ask,
    complete,
    drafting,
    hf_layer_tensors,
    linear_maps,
    load_adapters,
    load_hf,
    peft_modules,
    read_adapter,
    save_hf,
    save_served,
    scoring,
    served,
)

requires("serve_adapters", "tests/engines", "tests/served")

BASE = dataclasses.replace(WIDE, init_std=0.05)  # so that rounding in fp32 stays below 1e-5

PROMPTS = [list(range(5, 5 + n)) for n in (9, 17, 13)]


@functools.cache
def base() -> Decoder:
    return jax.jit(lambda: Decoder(BASE, nnx.Rngs(0)))()


def save_adapter(folder, rank: int, modules: list[str], **settings) -> dict[str, np.ndarray]:
    """Writes a random adapter as peft does; returns what it adds to the weight of each module."""
    rng = np.random.default_rng(rank)
    weights = load_file(folder.parent / "base/model.safetensors")
    tensors, added = {}, {}
    matrices = [layout.replace("(", "").split(" -> ") for _, _, layout in hf_layer_tensors() if " " in layout[:3]]
    in_first = all(ours[0] == theirs[0] for ours, theirs in matrices)  # as GPT-2 has its weights
    for module in modules:
        outputs, inputs = weights[f"{module}.weight"].shape[:: -1 if in_first else 1]
        a, b = (rng.normal(0, 0.1, shape).astype(np.float32) for shape in ((rank, inputs), (outputs, rank)))
        product = 6 / (rank**0.5 if settings.get("use_rslora") else rank) * b @ a
        added[f"{module}.weight"] = product.T if in_first else product
        tensors |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings |= {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "bias": "none", "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return added


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The base, two adapters, of which one has a part of the modules, and the base with each merged into it."""
    folder = tmp_path_factory.mktemp("adapters")
    save_hf(BASE, base(), folder / "base")
    modules = [name for name in peft_modules(linear_maps(BASE), BASE) if ".experts." not in name]
    weights = load_file(folder / "base/model.safetensors")
    for name, added in {
        "one": save_adapter(folder / "one", 3, modules),
        "two": save_adapter(folder / "two", 5, modules[::3], use_rslora=True),
    }.items():
        (folder / f"merged_{name}").mkdir()
        merged = {key: x + added[key] if key in added else x for key, x in weights.items()}
        save_file(merged, folder / f"merged_{name}/model.safetensors")
        (folder / f"merged_{name}/config.json").write_text((folder / "base/config.json").read_text())
    return folder


def adapted(folder) -> Decoder:
    model = jax.tree.map(lambda x: x, base())
    load_adapters(BASE, model, (f"one={folder / 'one'}", f"two={folder / 'two'}"), None)
    return model


def test_each_sequence_of_a_batch_has_its_own_adapter(folder, monkeypatch):
    known = {}
    wrong = [7] * 20

    def draft(request, most):
        """Returns what the same request had when it was served before; at first, wrong tokens."""
        return known.get((*request.prompt, request.sampling.adapter), wrong)[len(request.tokens) :][:most]

    monkeypatch.setattr(sys.modules[Engine.__module__], "draft_ngram", draft, raising=False)
    sizes = dict(max_sequences=4, max_length=64, page_size=4, chunk=16)
    engine = Engine(BASE, adapted(folder), set(), EngineSettings(**sizes, **drafting(2)))
    alone = {name: load_hf(folder / f"merged_{name}")[1] for name in ("one", "two")} | {"": base()}
    requests = []
    for _ in range(2):
        requests += [
            engine.add(prompt, SamplingParams(max_tokens=20, ignore_eos=True, adapter=name))
            for prompt in PROMPTS
            for name in alone
        ]
        while engine.queued or engine.running:
            engine.step()
        known |= {(*x.prompt, x.sampling.adapter): x.tokens for x in requests}
    for name, model in alone.items():
        logprobs = scoring(model, 64)
        own = [x for x in requests if x.sampling.adapter == name]
        for request in own:
            places = np.arange(len(request.prompt) - 1, len(request.sequence) - 1)
            expected = logprobs(request.sequence)[places]
            np.testing.assert_allclose(request.logprobs, expected[range(20), request.tokens], atol=1e-5)
            assert request.tokens == expected.argmax(-1).tolist()
        assert own[0].cached == 0 and [x.cached for x in own[3:]] == [8, 16, 12]
    assert len({tuple(x.logprobs) for x in requests[:3]}) == 3  # or it would show nothing
    point("test_serve_adapters.served", engine, requests, alone)
    with pytest.raises(InputError, match="adapter three: must be one of one, two"):
        engine.add([1], SamplingParams(adapter="three"))


def test_an_adapter_that_overflows_reaches_no_other_sequence(folder, tmp_path):
    shutil.copytree(folder / "one", tmp_path / "wild")
    path = tmp_path / "wild/adapter_model.safetensors"
    save_file({name: x * np.float32(1e28) for name, x in load_file(path).items()}, path)
    model = jax.tree.map(lambda x: x, base())
    load_adapters(BASE, model, (f"wild={tmp_path / 'wild'}",), None)
    sizes = dict(max_sequences=2, max_length=64, page_size=4, chunk=16, kv_cache_tokens=64)
    engine = Engine(BASE, model, set(), EngineSettings(**sizes))
    logprobs = scoring(base(), 64)
    for names in ("wild",), ("",), ("wild", ""), ("", "wild"):  # one after the other, in the same pages, and at once
        sampling = [SamplingParams(max_tokens=20, ignore_eos=True, adapter=name) for name in names]
        requests = [engine.add(PROMPTS[0], each) for each in sampling]
        while engine.queued or engine.running:
            engine.step()
        for name, request in zip(names, requests, strict=True):
            places = np.arange(len(request.prompt) - 1, len(request.sequence) - 1)
            expected = logprobs(request.sequence)[places]
            assert np.isfinite(request.logprobs).all() == (name == "")  # or it would show nothing
            if not name:
                np.testing.assert_allclose(request.logprobs, expected[range(20), request.tokens], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"use_dora": True}, "use_dora is true: it scales the kernels"),
        ({"bias": "all"}, 'bias is "all": it has biases'),
        ({"modules_to_save": ["lm_head"]}, "it has whole modules"),
        ({"rank_pattern": {"q": 2}}, "differ in rank"),
        ({"init_lora_weights": "pissa"}, "with other weights than the base's"),
        ({"new_method": 3}, "not known here"),
        ({"r": 4}, "rows of its lora_A: 3, but r of adapter_config.json is 4"),
        ({"lora_alpha": "16"}, "lora_alpha is"),
        ({"peft_type": "IA3"}, "not LORA"),
    ],
)
def test_an_adapter_that_is_more_than_its_two_matrices_is_refused(folder, tmp_path, change, problem):
    settings = json.loads((folder / "one/adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings | change))
    (tmp_path / "adapter_model.safetensors").write_bytes((folder / "one/adapter_model.safetensors").read_bytes())
    with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))}/adapter_.*{re.escape(problem)}"):
        read_adapter(str(tmp_path), BASE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x: x.T.copy(), r"is float32 \[.*\], not float32"),
        (lambda x: x.astype(np.int32), "is int32"),
        (lambda x: x * np.nan, "numbers that are not finite"),
        (lambda x: None, "is missing"),
    ],
)
def test_a_wrong_tensor_of_an_adapter_is_named(folder, tmp_path, change, problem):
    (tmp_path / "adapter_config.json").write_bytes((folder / "one/adapter_config.json").read_bytes())
    tensors = load_file(folder / "one/adapter_model.safetensors")
    name = max(tensors)  # a lora_B
    tensors = tensors | {name: change(tensors[name]), "base_model.model.lm_head.lora_B.weight": tensors[name]}
    save_file({name: x for name, x in tensors.items() if x is not None}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(InputError) as error:
        read_adapter(str(tmp_path), BASE)
    first, wrong, unknown = str(error.value).splitlines()
    assert "adapter_model.safetensors: its tensors" in first and "lm_head.lora_B.weight' is of nothing" in unknown
    assert name in wrong and re.search(problem, wrong)


@pytest.mark.parametrize("content", [None, b"", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_directory_without_an_adapter_is_an_error(folder, tmp_path, content):
    (tmp_path / "adapter_config.json").write_bytes((folder / "one/adapter_config.json").read_bytes())
    if content is not None:
        (tmp_path / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"adapter_model\.safetensors: "):
        read_adapter(str(tmp_path), BASE)
    with pytest.raises(InputError, match="must be NAME=DIR"):
        load_adapters(BASE, base(), (str(tmp_path),), None)
    with pytest.raises(InputError, match="one of x, x is there twice"):
        load_adapters(BASE, base(), (f"x={tmp_path}", f"x={tmp_path}"), None)


def test_a_server_has_a_model_for_each_adapter(folder, tmp_path):
    save_served(tmp_path / "served")
    shutil.copy(folder / "base/model.safetensors", tmp_path / "served")
    modules = "--lora-modules", f"one={folder / 'one'}", f"two={folder / 'two'}"
    with served(tmp_path / "served", "--model", "small", *modules) as (_, port, _):
        models = ask(port, "/v1/models")[2]["data"]
        assert [(x["id"], x.get("parent")) for x in models] == [("small", None), ("one", "small"), ("two", "small")]
        assert ask(port, "/v1/models/two")[2]["id"] == "two" and ask(port, "/v1/models/three")[0] == 404
        asked = dict(prompt=[PROMPTS[0]], max_tokens=8, temperature=0, ignore_eos=True, return_token_ids=True)
        engine = Engine(BASE, adapted(folder), set(), EngineSettings(max_sequences=1, max_length=64))
        for model, adapter in {"small": "", "one": "one", "two": "two"}.items():
            answer = complete(port, model=model, **asked)
            sampling = SamplingParams(max_tokens=8, ignore_eos=True, adapter=adapter)
            (expected,) = engine.generate(PROMPTS[:1], sampling)
            assert answer["model"] == model and answer["choices"][0]["token_ids"] == expected.tokens
        status, _, answer = ask(port, "/v1/completions", asked | {"model": "three"})
        assert status == 404 and "use 'small' or 'one' or 'two'" in answer["error"]["message"]


@splice("test_serve_parts.engine")
def _(engine):
    engine.adapters = [""]
